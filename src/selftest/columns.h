// The columns of the self-test's table: what is checked of each model. Those of the reference's own
// state suite have its names and meaning; the others are promises that it doesn't make.
//
// To add one: a function here, in a file of its kind, and a row in columns.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "selftest/subject.h"
#include "stet/status.h"

namespace stet::selftest {

struct CheckOptions {
    bool is_deep = false;             // everything, however long it takes
    std::filesystem::path old_files;  // directory with state of llama.cpp; empty: none
};

// Answers what was checked in a few words, an empty text where there is nothing to check, and a
// failure where a promise was broken.
using Check = Result<std::string> (*)(Subject&, const CheckOptions&);

struct Column {
    std::string_view name;
    std::string_view promise;
    Check check;
    bool is_poisoned;  // runs once for each pattern that unused memory is filled with
};
std::span<const Column> columns();

// As the reference's suite (reference_checks.cpp).
Result<std::string> check_baseline(Subject& subject, const CheckOptions& options);
Result<std::string> check_removal(Subject& subject, const CheckOptions& options);
Result<std::string> check_context_file(Subject& subject, const CheckOptions& options);
Result<std::string> check_copy_by_bytes(Subject& subject, const CheckOptions& options);
Result<std::string> check_copy_by_value(Subject& subject, const CheckOptions& options);
Result<std::string> check_scattered_by_bytes(Subject& subject, const CheckOptions& options);
Result<std::string> check_scattered_by_value(Subject& subject, const CheckOptions& options);
Result<std::string> check_round_trip(Subject& subject, const CheckOptions& options);
Result<std::string> check_restore_failure(Subject& subject, const CheckOptions& options);
Result<std::string> check_quantized_rows(Subject& subject, const CheckOptions& options);

// Restores that fail (failure_checks.cpp).
Result<std::string> check_failed_restore(Subject& subject, const CheckOptions& options);
Result<std::string> check_failed_context_restore(Subject& subject, const CheckOptions& options);
Result<std::string> check_each_part(Subject& subject, const CheckOptions& options);
Result<std::string> check_flips_and_cuts(Subject& subject, const CheckOptions& options);

// Going back, aside and on (motion_checks.cpp).
Result<std::string> check_fork(Subject& subject, const CheckOptions& options);
Result<std::string> check_rollback(Subject& subject, const CheckOptions& options);
Result<std::string> check_boundaries(Subject& subject, const CheckOptions& options);

// State that llama.cpp saved (import_check.cpp).
Result<std::string> check_old_files(Subject& subject, const CheckOptions& options);

}  // namespace stet::selftest
