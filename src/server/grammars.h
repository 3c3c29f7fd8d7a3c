// Grammars that requests bring along, compiled on a thread of their own: neither the engine's
// thread nor the ones that clients are read with wait for a hard one. Those in memory need no wait.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "grammar/grammar.h"
#include "server/context.h"

namespace stet::server {

class Grammars {
  public:
    using GrammarPtr = std::shared_ptr<const grammar::Grammar>;
    // Goes on with the request; a failure is answered by who calls it.
    using Then = std::function<Status(Call& call, GrammarPtr grammar)>;

    Grammars(const text::Tokenizer& tokenizer, std::uint32_t vocabulary);
    ~Grammars();  // stop()

    // Any thread. Calls `then` at once if the grammar is in memory, else later, or answers the
    // request with what is wrong. unavailable: too many are waiting, or the server stops.
    Status compile(const Call& call, grammar::Source source, Then then);
    // What still waits is answered with 503.
    void stop();

  private:
    struct Task {
        Call call;
        grammar::Source source;
        Then then;
    };

    void run();

    grammar::Compiler compiler_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::list<Task> tasks_;
    std::string last_tenant_;  // of the thread alone
    bool is_stopping_ = false;
    std::thread thread_;
};

}  // namespace stet::server
