// Figures for Prometheus: llama-server's names for dashboards that exist, ours for the rest. The
// names are public and keep their meaning.
#include <fmt/format.h>

#include "server/context.h"

namespace stet::server {
namespace {

class Page {
  public:
    void add(std::string_view name, std::string_view type, std::string_view help, double value) {
        text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, type, value);
    }
    void counter(std::string_view name, std::string_view help, double value) {
        add(name, "counter", help, value);
    }
    void gauge(std::string_view name, std::string_view help, double value) {
        add(name, "gauge", help, value);
    }
    void line(std::string_view text) { text_ += fmt::format("{}\n", text); }
    std::string take() { return std::move(text_); }

  private:
    std::string text_;
};

double real(std::uint64_t value) {
    return static_cast<double>(value);
}

double rate(std::uint64_t count, double seconds) {
    return seconds > 0.0 ? real(count) / seconds : 0.0;
}

void add_peer_metrics(Page& page, const LoopStats& loop) {
    page.counter("llamacpp:prompt_tokens_total", "Prompt tokens computed.",
                 real(loop.prompt_tokens));
    page.counter("llamacpp:prompt_tokens_cached_total", "Prompt tokens whose state was reused.",
                 real(loop.reused_tokens));
    page.counter("llamacpp:prompt_seconds_total", "Time of prompts.", loop.prompt_seconds);
    page.counter("llamacpp:tokens_predicted_total", "Tokens of answers.",
                 real(loop.predicted_tokens));
    page.counter("llamacpp:tokens_predicted_seconds_total", "Time of answers.",
                 loop.predict_seconds);
    page.counter("llamacpp:n_decode_total", "Steps.", real(loop.steps));
    page.counter("llamacpp:n_tokens_max", "Longest sequence so far.", real(loop.tokens_max));
    page.gauge("llamacpp:n_busy_slots_per_decode", "Sequences in a step, on average.",
               loop.steps > 0 ? real(loop.busy_slot_steps) / real(loop.steps) : 0.0);
    page.gauge("llamacpp:prompt_tokens_seconds", "Prompt tokens a second.",
               rate(loop.prompt_tokens, loop.prompt_seconds));
    page.gauge("llamacpp:predicted_tokens_seconds", "Tokens of answers a second.",
               rate(loop.predicted_tokens, loop.predict_seconds));
    page.gauge("llamacpp:requests_processing", "Requests being answered.", real(loop.running));
    page.gauge("llamacpp:requests_deferred", "Requests that wait.", real(loop.waiting));
}

void add_own_metrics(Page& page, Context& context, const LoopStats& loop) {
    page.counter("stet_requests_total", "Requests begun.", real(loop.requests));
    page.counter("stet_requests_failed_total", "Requests that failed.", real(loop.failures));
    page.counter("stet_requests_cancelled_total", "Requests whose client left.",
                 real(loop.cancelled));
    page.counter("stet_requests_shed_total", "Requests refused because too many waited.",
                 real(loop.shed));
    page.line("# HELP stet_reuse_total Requests by where the state of their prompt came from.");
    page.line("# TYPE stet_reuse_total counter");
    for (const auto& [source, count] : loop.reuse_by_source) {
        page.line(fmt::format("stet_reuse_total{{source=\"{}\"}} {}", source, count));
    }
    page.gauge("stet_kept_sequences", "Finished sequences in memory.", real(loop.kept));
    page.counter("stet_evictions_total", "Sequences dropped for room.", real(loop.evictions));
    const memory::PoolStats pool = context.engine->pool().stats();
    page.gauge("stet_state_bytes", "State in memory.", real(pool.bytes_in_use));
    page.gauge("stet_state_bytes_limit", "Bound of the state in memory.", real(pool.bytes_limit));
    page.gauge("stet_state_pages", "Pages and blocks in memory.", real(pool.pages_in_use));
    page.gauge("stet_connections", "Open connections.", context.connections());
    if (context.keeper == nullptr) return;
    const KeeperStats keeper = context.keeper->stats();
    page.counter("stet_commits_total", "Turns made durable.", real(keeper.commits));
    page.counter("stet_commit_failures_total", "Turns that could not be made durable.",
                 real(keeper.commit_failures));
    page.counter("stet_commit_seconds_total", "Time of commits.", keeper.commit_seconds);
    page.counter("stet_restores_total", "Sequences read from the store.", real(keeper.loads));
    page.counter("stet_restore_failures_total", "Sequences that could not be read.",
                 real(keeper.load_failures));
    page.counter("stet_restore_seconds_total", "Time of restores.", keeper.load_seconds);
    page.counter("stet_restore_bytes_total", "Bytes read and verified.", real(keeper.bytes_read));
    const Upkeep& upkeep = keeper.upkeep;
    page.counter("stet_scrubbed_bytes_total", "Bytes verified in idle time.",
                 real(upkeep.scrubbed_bytes));
    page.counter("stet_damaged_records_total", "Records found damaged in idle time.",
                 real(upkeep.damaged_records));
    page.counter("stet_collections_total", "Collections of garbage.", real(upkeep.collections));
    page.counter("stet_collected_bytes_total", "Bytes that these gave back.",
                 real(upkeep.collected_bytes));
    page.counter("stet_expired_sessions_total", "Sessions that went by age.",
                 real(upkeep.expired_sessions));
    page.gauge("stet_stored_sequences", "Sequences in the stores.", real(keeper.sessions));
    page.gauge("stet_store_waiting", "Tasks that wait for the store.", real(keeper.waiting));
}

Status metrics(Call& call) {
    Context& context = call.context;
    if (context.settings.no_metrics) {
        return Status(Code::unimplemented, "this server was started with --no-metrics");
    }
    Page page;
    const LoopStats loop = context.loop->stats();
    add_peer_metrics(page, loop);
    add_own_metrics(page, context, loop);
    Response response;
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = page.take();
    response.headers.emplace_back("Process-Start-Time-Unix", std::to_string(context.started_s));
    call.exchange->send(std::move(response));
    return {};
}

}  // namespace

void add_metrics_routes(std::vector<Route>& routes) {
    routes.push_back({"GET", "/metrics", metrics});
}

}  // namespace stet::server
