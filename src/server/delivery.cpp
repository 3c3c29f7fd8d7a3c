#include "server/delivery.h"

#include <fmt/format.h>

#include <optional>

#include "base/try.h"

namespace stet::server {
namespace {

// Lives as long as a job has a sink to it. Its state is touched only in exchange->post().
class Delivery : public std::enable_shared_from_this<Delivery> {
  public:
    Delivery(const Call& call, std::size_t choices, std::unique_ptr<AnswerFormat> format,
             bool is_stream)
        : context_(call.context),
          exchange_(call.exchange),
          dialect_(call.dialect),
          format_(std::move(format)),
          is_stream_(is_stream),
          answers_(choices) {}

    bool is_stream() const { return is_stream_; }
    Exchange& exchange() { return *exchange_; }

    void watch(std::vector<std::weak_ptr<Job>> jobs) {
        jobs_ = std::move(jobs);
        exchange_->on_gone([self = shared_from_this()] { self->cancel_all(); });
    }
    void cancel_all() {
        for (const auto& weak : jobs_) {
            if (const auto job = weak.lock()) job->is_cancelled = true;
        }
        context_.loop->wake();
    }

    void progress(std::size_t choice, const Progress& progress, std::function<void()> on_written) {
        if (is_over_) return on_written();
        begin();
        exchange_->write(format_->piece(choice, progress), std::move(on_written));
    }

    void done(std::size_t choice, Answer answer) {
        if (is_over_) return;
        if (!answer.status.is_ok()) return fail(answer.status);
        if (is_stream_) {
            begin();
            std::string last;
            if (!answer.rest.text.empty() || !answer.rest.tokens.empty()) {
                last = format_->piece(choice, answer.rest);
            }
            last += format_->finished(choice, answer);
            exchange_->write(std::move(last), nullptr);
        }
        answers_[choice] = std::move(answer);
        if (++done_count_ == answers_.size()) finish();
    }

  private:
    void begin() {
        if (has_begun_) return;
        has_begun_ = true;
        Response head;
        head.content_type = "text/event-stream; charset=utf-8";
        head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
        exchange_->begin(std::move(head));
        exchange_->write(format_->begin(), nullptr);
    }

    void finish() {
        is_over_ = true;
        std::uint64_t prompt = 0, reused = 0, predicted = 0;
        for (const Answer& answer : answers_) {
            prompt += answer.prompt_tokens;
            reused += answer.reuse.reused_tokens;
            predicted += answer.tokens.size();
        }
        exchange_->note(fmt::format("prompt={} reused={} predicted={} slot={} source={}", prompt,
                                    reused, predicted, answers_.front().slot,
                                    answers_.front().reuse.source));
        if (is_stream_) {
            exchange_->write(format_->end(answers_), nullptr);
            return exchange_->end();
        }
        Response response;
        response.body = dump(format_->whole(answers_));
        exchange_->send(std::move(response));
    }

    void fail(const Status& status) {
        is_over_ = true;
        cancel_all();
        exchange_->note(std::string(code_name(status.code())));
        const Failure failure = failure_of(status);
        if (!has_begun_) return exchange_->send(failure_response(failure, dialect_));
        exchange_->write(format_->failed(failure), nullptr);
        exchange_->end();
    }

    Context& context_;
    std::shared_ptr<Exchange> exchange_;
    Dialect dialect_;
    std::unique_ptr<AnswerFormat> format_;
    bool is_stream_;
    bool has_begun_ = false;
    bool is_over_ = false;
    std::vector<Answer> answers_;
    std::size_t done_count_ = 0;
    std::vector<std::weak_ptr<Job>> jobs_;
};

class ChoiceSink : public AnswerSink {
  public:
    ChoiceSink(std::shared_ptr<Delivery> delivery, std::size_t choice)
        : delivery_(std::move(delivery)), choice_(choice) {}

    bool can_take() const override {
        constexpr int kWaitingMax = 4;  // pieces on their way to the client
        return delivery_->is_stream() && waiting_->load() < kWaitingMax;
    }
    void progress(Progress progress) override {
        ++*waiting_;
        delivery_->exchange().post([delivery = delivery_, choice = choice_, waiting = waiting_,
                                    progress = std::move(progress)] {
            delivery->progress(choice, progress, [waiting] { --*waiting; });
        });
    }
    void done(Answer answer) override {
        delivery_->exchange().post(
            [delivery = delivery_, choice = choice_, answer = std::move(answer)]() mutable {
                delivery->done(choice, std::move(answer));
            });
    }

  private:
    std::shared_ptr<Delivery> delivery_;
    std::size_t choice_;
    std::shared_ptr<std::atomic<int>> waiting_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace

std::string event(const Json& data) {
    return "data: " + dump(data) + "\n\n";
}

std::string event(std::string_view name, const Json& data) {
    return fmt::format("event: {}\ndata: {}\n\n", name, dump(data));
}

void deliver_made(Call& call, Answer answer, std::unique_ptr<AnswerFormat> format, bool is_stream) {
    auto delivery = std::make_shared<Delivery>(call, 1, std::move(format), is_stream);
    call.exchange->post(
        [delivery, answer = std::move(answer)]() mutable { delivery->done(0, std::move(answer)); });
}

Status deliver(Call& call, std::vector<std::shared_ptr<Job>> jobs,
               std::unique_ptr<AnswerFormat> format, bool is_stream) {
    const std::uint64_t context = call.context.engine->context();
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::seconds(call.context.settings.timeout_s);
    auto delivery = std::make_shared<Delivery>(call, jobs.size(), std::move(format), is_stream);
    std::vector<std::weak_ptr<Job>> watched;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        if (jobs[i]->prompt.size() > context) {
            call.send_failure(context_failure(jobs[i]->prompt.size(), context));
            return {};
        }
        STET_TRY(jobs[i]->options.sampling.validate());
        jobs[i]->request_id = call.request.id;
        jobs[i]->tenant = call.tenant;
        jobs[i]->deadline = deadline;
        jobs[i]->sink = std::make_shared<ChoiceSink>(delivery, i);
        watched.emplace_back(jobs[i]);
    }
    delivery->watch(std::move(watched));
    for (const auto& job : jobs) {
        if (Status status = call.context.loop->submit(job); !status) {
            delivery->cancel_all();
            return status;
        }
    }
    return {};
}

}  // namespace stet::server
