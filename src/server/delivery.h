// The way of answers back to their client: all choices of one request, whole or as a stream of
// events, in the form that an AnswerFormat gives them. A client that leaves cancels its jobs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/context.h"
#include "server/job.h"
#include "server/json.h"

namespace stet::server {

// What one interface makes of answers. Used by one thread at a time.
class AnswerFormat {
  public:
    virtual ~AnswerFormat() = default;
    // Events of a stream, as text that is sent as it is ("data: ...\n\n").
    virtual std::string begin() { return {}; }
    virtual std::string piece(std::size_t choice, const Progress& progress) = 0;
    virtual std::string finished(std::size_t choice, const Answer& answer) = 0;
    virtual std::string end(const std::vector<Answer>& answers) = 0;
    virtual std::string failed(const Failure& failure) = 0;
    // The whole body when it is no stream.
    virtual Json whole(const std::vector<Answer>& answers) = 0;
};

std::string event(const Json& data);
std::string event(std::string_view name, const Json& data);

// Delivers an answer that is there already.
void deliver_made(Call& call, Answer answer, std::unique_ptr<AnswerFormat> format, bool is_stream);

// Gives the jobs to the loop, one for each choice, with sinks that deliver. Every job needs tokens;
// a prompt that is too long is answered here.
Status deliver(Call& call, std::vector<std::shared_ptr<Job>> jobs,
               std::unique_ptr<AnswerFormat> format, bool is_stream);

}  // namespace stet::server
