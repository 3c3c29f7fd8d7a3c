// Named, durable conversations. Everything here runs on the keeper's thread.
#include <fmt/format.h>

#include "base/try.h"
#include "engine/turn_content.h"
#include "server/context.h"
#include "server/json.h"
#include "server/routes/sessions.h"
#include "store/names.h"

namespace stet::server {
namespace {

Json turn_json(const store::Turn& turn) {
    Json json = {{"id", turn.id},
                 {"number", turn.number},
                 {"tokens", turn.token_end - turn.token_begin},
                 {"token_end", turn.token_end},
                 {"created", turn.created_ns / 1'000'000'000}};
    json["messages"] = Json::array();
    if (const auto content = engine::decode_turn_content(turn.content)) {
        for (const auto& message : content->messages) {
            json["messages"].push_back({{"role", message.role}, {"content", message.content}});
        }
    }
    return json;
}

Status list(Call& outer) {
    return with_store(outer, [](Call& call, Keeper&, store::Store& store) -> Status {
        STET_ASSIGN(const auto sessions, store.list());
        Json data = Json::array();
        for (const auto& session : sessions) data.push_back(session_json(session));
        call.send_json({{"object", "list"}, {"data", std::move(data)}});
        return {};
    });
}

Status create(Call& outer) {
    STET_ASSIGN(const Json body, parse_object(outer.request.body));
    Fields fields(body);
    std::string name;
    fields.require("id");
    fields.text("id", name);
    STET_TRY(fields.status());
    return with_store(outer, [name](Call& call, Keeper& keeper, store::Store& store) -> Status {
        const auto& model = keeper.engine().model();
        STET_ASSIGN(const auto session,
                    store.create(name, keeper.fingerprint(), keeper.engine().schema(),
                                 model.config.name, model.file->path().string()));
        call.send_json(session_json(session), 201);
        return {};
    });
}

Status get(Call& outer) {
    return with_store(outer, [](Call& call, Keeper& keeper, store::Store& store) -> Status {
        STET_ASSIGN(const auto session, store.find(call.parameters.at(0)));
        STET_ASSIGN(const auto turns, store.turns(session.name));
        constexpr std::uint64_t kPage = memory::kPageRows;
        Json json = session_json(session);
        json["page_tokens"] = kPage;
        json["pages"] = (session.tokens + kPage - 1) / kPage;
        json["shared_pages"] = keeper.shared_tokens(call.tenant, session.name) / kPage;
        json["history"] = Json::array();
        for (const auto& turn : turns) json["history"].push_back(turn_json(turn));
        call.send_json(json);
        return {};
    });
}

Status remove(Call& outer) {
    return with_store(outer, [](Call& call, Keeper& keeper, store::Store& store) -> Status {
        const std::string& name = call.parameters.at(0);
        STET_TRY(store.remove(name));
        keeper.refresh(call.tenant, name);
        call.send_json({{"id", name}, {"object", "session"}, {"deleted", true}});
        return {};
    });
}

// The turn that a request names by its number (1 for the first, 0 for before it).
Result<std::optional<store::TurnId>> turn_of(store::Store& store, const std::string& session,
                                             std::int64_t number) {
    if (number < 0) return std::optional<store::TurnId>();
    if (number == 0) return std::optional(store::kNoTurn);
    STET_ASSIGN(const auto turns, store.turns(session));
    if (static_cast<std::size_t>(number) > turns.size()) {
        return Status(Code::not_found, fmt::format("session '{}' has {} turns, not {}", session,
                                                   turns.size(), number));
    }
    return std::optional(turns[static_cast<std::size_t>(number) - 1].id);
}

Status fork(Call& outer) {
    STET_ASSIGN(const Json body, parse_object(outer.request.body));
    Fields fields(body);
    std::string name;
    std::int64_t number = -1;
    fields.require("id");
    fields.text("id", name);
    fields.integer("turn", number, 1, std::numeric_limits<std::int32_t>::max());
    STET_TRY(fields.status());
    return with_store(outer, [=](Call& call, Keeper& keeper, store::Store& store) -> Status {
        const std::string& from = call.parameters.at(0);
        STET_ASSIGN(const auto turn, turn_of(store, from, number));
        STET_ASSIGN(const auto session, store.fork(from, name, turn));
        keeper.refresh(call.tenant, name);
        call.send_json(session_json(session), 201);
        return {};
    });
}

Status rollback(Call& outer) {
    STET_ASSIGN(const Json body, parse_object(outer.request.body));
    Fields fields(body);
    std::int64_t number = -1;
    fields.require("turn");
    fields.integer("turn", number, 0, std::numeric_limits<std::int32_t>::max());
    STET_TRY(fields.status());
    return with_store(outer, [=](Call& call, Keeper& keeper, store::Store& store) -> Status {
        const std::string& name = call.parameters.at(0);
        STET_ASSIGN(const auto turn, turn_of(store, name, number));
        STET_TRY(store.rollback(name, turn.value_or(store::kNoTurn)));
        keeper.refresh(call.tenant, name);
        STET_ASSIGN(const auto session, store.find(name));
        call.send_json(session_json(session));
        return {};
    });
}

// `{"pinned": false}` lets it go again.
Status pin(Call& outer) {
    STET_ASSIGN(const Json body, parse_object(outer.request.body));
    Fields fields(body);
    bool is_pinned = true;
    fields.flag("pinned", is_pinned);
    STET_TRY(fields.status());
    return with_store(outer, [is_pinned](Call& call, Keeper&, store::Store& store) -> Status {
        const std::string& name = call.parameters.at(0);
        STET_TRY(store.pin(name, is_pinned));
        STET_ASSIGN(const auto session, store.find(name));
        call.send_json(session_json(session));
        return {};
    });
}

// Reads every byte that the session needs, and says whether it is as it was written.
Status verify(Call& outer) {
    return with_store(outer, [](Call& call, Keeper& keeper, store::Store& store) -> Status {
        const std::string& name = call.parameters.at(0);
        STET_ASSIGN(const auto session, store.find(name));
        Json json = {{"id", name}, {"tokens", session.tokens}, {"intact", true}};
        if (session.head != store::kNoTurn) {
            const auto loaded = store.load(name, keeper.fingerprint(), keeper.engine().pool());
            if (!loaded && loaded.status().code() != Code::corruption) return loaded.status();
            json["intact"] = loaded.is_ok();
            if (loaded) json["bytes"] = loaded->bytes_read;
            if (!loaded) json["reason"] = loaded.status().to_string();
        }
        call.send_json(json);
        return {};
    });
}

// All earlier turns of the session are durable when it answers, and the head can be gone back to.
Status checkpoint(Call& outer) {
    return with_store(outer, [](Call& call, Keeper&, store::Store& store) -> Status {
        STET_ASSIGN(const auto session, store.find(call.parameters.at(0)));
        call.send_json({{"id", session.name},
                        {"object", "session.checkpoint"},
                        {"turn", session.turns},
                        {"tokens", session.tokens},
                        {"durable", true}});
        return {};
    });
}

}  // namespace

Status with_store(Call& call, StoreWork work) {
    if (call.context.keeper == nullptr) {
        return Status(Code::unimplemented, "this server keeps no sessions (--durability none)");
    }
    return call.context.keeper->run(
        call.tenant, [call, work = std::move(work)](Keeper& keeper, store::Store& store) mutable {
            if (Status status = work(call, keeper, store); !status) {
                call.send_failure(failure_of(status));
            }
        });
}

Json session_json(const store::SessionInfo& session) {
    return {{"id", session.name},
            {"object", "session"},
            {"model", session.model_name},
            {"fingerprint", session.fingerprint.hex()},
            {"turns", session.turns},
            {"tokens", session.tokens},
            {"created", session.created_ns / 1'000'000'000},
            {"used", session.used_ns / 1'000'000'000},
            {"pinned", session.is_pinned},
            {"unnamed", is_unnamed(session.name)}};
}

void add_session_routes(std::vector<Route>& routes) {
    routes.push_back({"GET", "/v1/sessions", list});
    routes.push_back({"POST", "/v1/sessions", create});
    routes.push_back({"GET", "/v1/sessions/:id", get});
    routes.push_back({"DELETE", "/v1/sessions/:id", remove});
    routes.push_back({"POST", "/v1/sessions/:id/fork", fork});
    routes.push_back({"POST", "/v1/sessions/:id/rollback", rollback});
    routes.push_back({"POST", "/v1/sessions/:id/pin", pin});
    routes.push_back({"POST", "/v1/sessions/:id/checkpoint", checkpoint});
    routes.push_back({"POST", "/v1/sessions/:id/verify", verify});
}

}  // namespace stet::server
