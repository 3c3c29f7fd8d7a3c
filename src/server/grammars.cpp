#include "server/grammars.h"

#include <algorithm>
#include <utility>

namespace stet::server {
namespace {

constexpr std::size_t kTasksMax = 64;
constexpr std::ptrdiff_t kTasksOfTenantMax = 32;

Status busy() {
    return Status(Code::unavailable, "too many grammars wait to be compiled; try again later");
}

}  // namespace

Grammars::Grammars(const text::Tokenizer& tokenizer, std::uint32_t vocabulary)
    : compiler_(tokenizer, vocabulary), thread_([this] { run(); }) {}

Grammars::~Grammars() {
    stop();
}

Status Grammars::compile(const Call& call, grammar::Source source, Then then) {
    if (GrammarPtr found = compiler_.find(source)) {
        Call copy = call;
        return then(copy, std::move(found));
    }
    {
        const std::lock_guard lock(mutex_);
        const auto own = std::count_if(tasks_.begin(), tasks_.end(), [&](const Task& task) {
            return task.call.tenant == call.tenant;
        });
        const bool is_full = tasks_.size() >= kTasksMax || own >= kTasksOfTenantMax;
        if (is_stopping_ || is_full) return busy();
        tasks_.push_back({call, std::move(source), std::move(then)});
    }
    wake_.notify_one();
    return {};
}

void Grammars::stop() {
    {
        const std::lock_guard lock(mutex_);
        if (is_stopping_) return;
        is_stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
    for (const Task& task : std::exchange(tasks_, {})) {
        task.call.send_failure(failure_of(Status(Code::unavailable, "the server stops")));
    }
}

void Grammars::run() {
    while (true) {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return is_stopping_ || !tasks_.empty(); });
        if (is_stopping_) return;
        // Tenants by turns: many hard grammars of one hold up only itself.
        auto next = std::find_if(tasks_.begin(), tasks_.end(), [&](const Task& task) {
            return task.call.tenant != last_tenant_;
        });
        if (next == tasks_.end()) next = tasks_.begin();
        Task task = std::move(*next);
        tasks_.erase(next);
        last_tenant_ = task.call.tenant;
        lock.unlock();
        Result<GrammarPtr> grammar = compiler_.compile(task.source);
        const Status status =
            grammar ? task.then(task.call, std::move(grammar).value()) : grammar.status();
        if (!status) task.call.send_failure(failure_of(status));
    }
}

}  // namespace stet::server
