// STET_TRY(expr): return the failure of a Status expression from this function.
// STET_ASSIGN(decl, expr): the same for a Result, else bind its value to decl.
#pragma once

#include "stet/status.h"

#define STET_CONCAT_(a, b) a##b
#define STET_CONCAT(a, b) STET_CONCAT_(a, b)

#define STET_TRY(expr)                                                                        \
    do {                                                                                      \
        if (::stet::Status stet_status_ = (expr); !stet_status_.is_ok()) return stet_status_; \
    } while (false)

#define STET_ASSIGN(decl, expr) STET_ASSIGN_(decl, expr, STET_CONCAT(stet_result_, __LINE__))
#define STET_ASSIGN_(decl, expr, tmp)      \
    auto tmp = (expr);                     \
    if (!tmp.is_ok()) return tmp.status(); \
    decl = std::move(tmp).value()
