// Texts as numbers: OpenAI's /v1/embeddings and llama-server's /embedding. Computed on the engine's
// thread, one step at a time, so that answers go on meanwhile.
#include "engine/embed.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/try.h"
#include "server/prompt.h"

namespace stet::server {
namespace {

constexpr std::size_t kTextsMax = 2048;

std::string base64(std::span<const std::byte> bytes) {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        std::uint32_t group = 0;
        const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
        for (std::size_t j = 0; j < 3; ++j) {
            group = group << 8U | (j < count ? std::to_integer<std::uint32_t>(bytes[i + j]) : 0U);
        }
        for (std::size_t j = 0; j < 4; ++j) {
            text += j <= count ? kDigits[group >> (18U - 6U * j) & 63U] : '=';
        }
    }
    return text;
}

// What a client asked for.
struct Wanted {
    std::vector<std::vector<Token>> texts;
    engine::EmbedOptions options;
    std::string model;  // as the client calls it
    bool is_openai = true;
    bool is_base64 = false;
};

Json row_json(std::span<const float> row, bool is_base64) {
    if (is_base64) return base64(std::as_bytes(row));
    return std::vector<float>(row.begin(), row.end());
}

Json openai_json(const Wanted& wanted, const std::vector<std::vector<float>>& rows) {
    Json data = Json::array();
    std::size_t tokens = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        data.push_back({{"object", "embedding"},
                        {"index", i},
                        {"embedding", row_json(rows[i], wanted.is_base64)}});
        if (wanted.is_base64) data.back()["encoding_format"] = "base64";
        tokens += wanted.texts[i].size();
    }
    return {{"model", wanted.model},
            {"object", "list"},
            {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}},
            {"data", std::move(data)}};
}

Json native_json(const std::vector<std::vector<float>>& rows, std::size_t width) {
    Json list = Json::array();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        Json embedding = Json::array();
        for (std::size_t at = 0; at < rows[i].size(); at += width) {
            embedding.push_back(row_json(std::span(rows[i]).subspan(at, width), false));
        }
        list.push_back({{"index", i}, {"embedding", std::move(embedding)}});
    }
    return list;
}

// A request under way. Touched by the engine's thread alone, apart from the flag.
class Embedding : public std::enable_shared_from_this<Embedding> {
  public:
    Embedding(const Call& call, Wanted wanted) : call_(call), wanted_(std::move(wanted)) {}

    void start() {
        call_.exchange->on_gone([self = shared_from_this()] { self->is_gone_ = true; });
        go_on();
    }

  private:
    void go_on() {
        call_.context.loop->call([self = shared_from_this()] { self->step(); });
    }
    void step() {
        if (is_gone_) return;
        const Result<bool> is_more = compute();
        if (!is_more)
            return answer(
                [this, status = is_more.status()] { call_.send_failure(failure_of(status)); });
        if (*is_more) return go_on();
        answer([this] {
            const std::size_t width = call_.context.engine->model().config.width;
            call_.send_json(wanted_.is_openai ? openai_json(wanted_, rows_)
                                              : native_json(rows_, width));
        });
    }
    Result<bool> compute() {
        if (!embedder_) {
            STET_ASSIGN(embedder_,
                        engine::Embedder::create(*call_.context.engine, wanted_.texts[rows_.size()],
                                                 wanted_.options));
        }
        STET_ASSIGN(const bool is_more, embedder_->step());
        if (is_more) return true;
        rows_.push_back(embedder_->take());
        embedder_.reset();
        return rows_.size() < wanted_.texts.size();
    }
    void answer(std::function<void()> send) {
        call_.exchange->post([self = shared_from_this(), send = std::move(send)] { send(); });
    }

    Call call_;
    Wanted wanted_;
    std::optional<engine::Embedder> embedder_;
    std::vector<std::vector<float>> rows_;  // by text
    std::atomic<bool> is_gone_{false};
};

Result<engine::Pooling> pooling_of(const Context& context) {
    if (!context.settings.pooling.empty()) return engine::parse_pooling(context.settings.pooling);
    return engine::pooling_of(*context.engine->model().file);
}

Status read_format(Fields& fields, std::size_t width, Wanted& wanted) {
    std::string format = "float";
    fields.text("encoding_format", format);
    if (format != "float" && format != "base64") fields.fail("encoding_format", "float or base64");
    wanted.is_base64 = format == "base64";
    fields.text("model", wanted.model);
    std::int64_t norm = wanted.options.norm;
    fields.integer("embd_normalize", norm, -1, engine::kNormMax);
    wanted.options.norm = static_cast<std::int32_t>(norm);
    auto dimensions = static_cast<std::int64_t>(width);
    fields.integer("dimensions", dimensions, 1, 1 << 24);
    STET_TRY(fields.status());
    if (dimensions != static_cast<std::int64_t>(width)) {
        return Status(
            Code::invalid_argument,
            fmt::format("'dimensions' is {}, this model's embeddings have {} and can't be "
                        "shortened",
                        dimensions, width));
    }
    return {};
}

Status embed(Call& call, bool is_openai) {
    const Context& context = call.context;
    STET_ASSIGN(const Json body, parse_object(call.request.body));
    Fields fields(body);
    Wanted wanted;
    wanted.is_openai = is_openai;
    wanted.model = context.model_name;
    wanted.options.norm = static_cast<std::int32_t>(context.settings.embd_normalize);
    STET_TRY(read_format(fields, context.engine->model().config.width, wanted));
    STET_ASSIGN(wanted.options.pooling, pooling_of(context));
    const char* name = fields.find("input") != nullptr ? "input" : "content";
    if (fields.find(name) == nullptr) {
        return Status(Code::invalid_argument, "'input' or 'content' must be given");
    }
    if (std::string_view(name) == "content") wanted.is_openai = false;
    if (wanted.is_openai && wanted.options.pooling == engine::Pooling::none) {
        return Status(
            Code::invalid_argument,
            "this model has no pooling of its own, and a row for each token has no place in "
            "this interface; start the server with --pooling mean, cls or last");
    }
    STET_ASSIGN(wanted.texts, prompts_of(context, *fields.find(name), name, kTextsMax));
    for (const auto& tokens : wanted.texts) {
        if (tokens.size() <= context.engine->context()) continue;
        call.send_failure(context_failure(tokens.size(), context.engine->context()));
        return {};
    }
    std::make_shared<Embedding>(call, std::move(wanted))->start();
    return {};
}

Status openai_embeddings(Call& call) {
    return embed(call, true);
}

Status native_embeddings(Call& call) {
    return embed(call, false);
}

}  // namespace

void add_embedding_routes(std::vector<Route>& routes) {
    routes.push_back({"POST", "/v1/embeddings", openai_embeddings});
    routes.push_back({"POST", "/embedding", native_embeddings});
    routes.push_back({"POST", "/embeddings", native_embeddings});
}

}  // namespace stet::server
