#include "stet/model.h"

#include <fmt/format.h>

#include <chrono>

#include "api/model_impl.h"
#include "base/try.h"
#include "engine/turn_content.h"
#include "gguf/gguf.h"

namespace stet {
namespace {

memory::ElementType element_type(RowType type) {
    switch (type) {
        case RowType::f32:
            return memory::ElementType::f32;
        case RowType::f16:
            return memory::ElementType::f16;
        case RowType::q8_0:
            return memory::ElementType::q8_0;
    }
    return memory::ElementType::f16;
}

Result<const text::Tokenizer*> tokenizer_of(const engine::Engine& engine) {
    if (engine.has_text()) return &engine.tokenizer();
    return Status(Code::unavailable, "the model was loaded without its tokenizer");
}

}  // namespace

Result<const state::Identity*> Model::Impl::identity() {
    if (!known_identity) {
        const gguf::File& file = *engine->model().file;
        Hash256 fingerprint;
        if (cache_directory.empty()) {
            fingerprint = gguf::compute_fingerprint(file);
        } else {
            STET_ASSIGN(fingerprint, gguf::fingerprint(Env::posix(), file, cache_directory));
        }
        known_identity = std::make_unique<state::Identity>(state::Identity::of(
            fingerprint, engine->schema(), types.k, types.v, engine->model().config.name));
    }
    return known_identity.get();
}

Result<Model> Model::load(const std::filesystem::path& path, const ModelOptions& options) {
    auto impl = std::make_shared<Impl>();
    impl->types = {element_type(options.k_type), element_type(options.v_type)};
    impl->cache_directory = options.cache_directory;
    STET_ASSIGN(auto file, gguf::File::open(Env::posix(), path));
    if (!options.without_text) {
        STET_ASSIGN(auto chat_template, text::ChatTemplate::for_model(*file));
        impl->chat_template = std::make_unique<text::ChatTemplate>(std::move(chat_template));
    }
    engine::EngineOptions wanted;
    wanted.model = {options.threads, impl->types};
    wanted.context = options.context;
    wanted.batch = options.batch;
    wanted.state_limit_bytes = options.state_limit_bytes;
    STET_ASSIGN(impl->engine,
                engine::Engine::create(std::move(file), wanted, options.without_text));
    return Model(std::move(impl));
}

std::string_view Model::name() const {
    return impl_->engine->model().config.name;
}

std::string_view Model::architecture() const {
    return impl_->engine->model().config.architecture->name;
}

std::uint32_t Model::vocabulary() const {
    return impl_->engine->vocabulary();
}

std::uint32_t Model::context() const {
    return impl_->engine->context();
}

std::uint64_t Model::state_bytes(std::uint64_t tokens) const {
    return impl_->engine->schema().bytes_at(tokens);
}

Result<std::vector<Token>> Model::encode(std::string_view text,
                                         const EncodeOptions& options) const {
    STET_ASSIGN(const text::Tokenizer* tokenizer, tokenizer_of(*impl_->engine));
    return tokenizer->encode(text, {options.add_special, options.parse_special});
}

Result<std::string> Model::decode(std::span<const Token> tokens, bool special) const {
    STET_ASSIGN(const text::Tokenizer* tokenizer, tokenizer_of(*impl_->engine));
    for (const Token token : tokens) {
        if (token < 0 || static_cast<std::uint32_t>(token) >= vocabulary()) {
            return Status(Code::invalid_argument, fmt::format("token id {} is not between 0 and {}",
                                                              token, vocabulary() - 1));
        }
    }
    return tokenizer->decode(tokens, special);
}

Result<std::string> Model::render(std::span<const Message> messages, bool generation_prompt) const {
    STET_ASSIGN(const text::Tokenizer* tokenizer, tokenizer_of(*impl_->engine));
    std::vector<engine::Message> copied;
    for (const Message& message : messages) copied.push_back({message.role, message.content});
    const auto piece = [&](Token token) {
        return token == text::kNoToken ? std::string() : tokenizer->piece(token, true);
    };
    return impl_->chat_template->render(
        engine::template_variables(copied, generation_prompt, piece(tokenizer->bos()),
                                   piece(tokenizer->eos())),
        std::chrono::system_clock::now());
}

}  // namespace stet
