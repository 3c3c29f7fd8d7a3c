#include "base/deep_stack.h"

#include <pthread.h>

#include <cstring>
#include <string>

namespace stet {
namespace {

void* run_work(void* work) {
    (*static_cast<const std::function<void()>*>(work))();
    return nullptr;
}

}  // namespace

Status run_on_deep_stack(std::size_t stack_bytes, const std::function<void()>& work) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_t thread{};
    int error = pthread_attr_setstacksize(&attributes, stack_bytes);
    if (error == 0) {
        // The thread only reads it.
        error = pthread_create(&thread, &attributes, run_work,
                               const_cast<std::function<void()>*>(&work));
    }
    pthread_attr_destroy(&attributes);
    if (error != 0) {
        return Status(
            Code::resource_exhausted,
            std::string("no thread with a deep stack could be started: ") + std::strerror(error));
    }
    pthread_join(thread, nullptr);
    return {};
}

}  // namespace stet
