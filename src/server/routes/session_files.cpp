// Sessions as files: out of this server and into it. The file is the body of the answer or of the
// request, or one of the slot directory that the body names.
#include "store/session_file.h"

#include <fmt/format.h>

#include "base/try.h"
#include "server/context.h"
#include "server/json.h"
#include "server/routes/sessions.h"

namespace stet::server {
namespace {

Status require_slot_files(const Call& call, const std::string& file_name) {
    if (call.context.slot_files == nullptr) {
        return Status(Code::unimplemented,
                      "this server has no directory for files: start it with --slot-save-path");
    }
    return check_file_name(file_name);
}

Json file_json(const store::SessionFile& file) {
    return {{"turns", file.turns.size()},
            {"tokens", file.sequence().position()},
            {"compressed", file.is_compressed}};
}

// Into a file of the slot directory when the body names one, else as the answer itself.
Status export_session(Call& outer) {
    std::string file_name;
    bool is_compressed = false;
    if (!outer.request.body.empty()) {
        STET_ASSIGN(const Json body, parse_object(outer.request.body));
        Fields fields(body);
        fields.text("filename", file_name);
        fields.flag("zstd", is_compressed);
        STET_TRY(fields.status());
    }
    if (!file_name.empty()) STET_TRY(require_slot_files(outer, file_name));
    return with_store(outer, [=](Call& call, Keeper&, store::Store& store) -> Status {
        const std::string& name = call.parameters.at(0);
        STET_ASSIGN(store::SessionFile file, store::collect_session(store, name));
        file.is_compressed = is_compressed;
        std::string bytes;
        const auto write = [&](state::Sink& sink) {
            return store::write_session(file, is_compressed, sink);
        };
        if (!file_name.empty()) {
            STET_ASSIGN(const std::uint64_t written,
                        call.context.slot_files->write_file(call.tenant, file_name, write));
            Json json = {{"id", name}, {"filename", file_name}, {"n_written", written}};
            json.update(file_json(file));
            call.send_json(json);
            return {};
        }
        state::CallbackSink sink([&](std::span<const std::byte> data) {
            bytes.append(reinterpret_cast<const char*>(data.data()), data.size());
            return Status();
        });
        STET_TRY(write(sink));
        call.exchange->send({200, "application/octet-stream", std::move(bytes), {}});
        return {};
    });
}

// The file of a body that is JSON and names one, else the body itself.
Result<store::SessionFile> read_session_file(const Call& call, const std::string& file_name) {
    const std::uint64_t memory = call.context.engine->pool().stats().bytes_limit;
    if (!file_name.empty()) {
        return call.context.slot_files->read_file(
            call.tenant, file_name,
            [&](state::Source& source) { return store::read_session(source, memory); });
    }
    state::SpanSource source(std::as_bytes(std::span(call.request.body)));
    return store::read_session(source, memory);
}

Status import_session(Call& outer) {
    std::string file_name;
    std::string name(outer.request.query_value("id"));
    if (outer.request.body.starts_with('{')) {
        STET_ASSIGN(const Json body, parse_object(outer.request.body));
        Fields fields(body);
        fields.require("filename");
        fields.text("filename", file_name);
        fields.text("id", name);
        STET_TRY(fields.status());
        STET_TRY(require_slot_files(outer, file_name));
    }
    return with_store(outer, [=](Call& call, Keeper& keeper, store::Store& store) -> Status {
        STET_ASSIGN(const store::SessionFile file, read_session_file(call, file_name));
        const auto& expected = keeper.engine().model().config;
        state::Identity identity = file.identity();
        identity.fingerprint = keeper.fingerprint();
        identity.schema_hash = keeper.engine().schema().hash();
        identity.model_name = expected.name;
        STET_TRY(state::check_identity(identity, file.identity()));
        const std::string& wanted = name.empty() ? file.name : name;
        STET_ASSIGN(const auto session, store::import_session(store, file, wanted));
        keeper.refresh(call.tenant, session.name);
        call.send_json(session_json(session), 201);
        return {};
    });
}

}  // namespace

void add_session_file_routes(std::vector<Route>& routes) {
    routes.push_back({"GET", "/v1/sessions/:id/export", export_session});
    routes.push_back({"POST", "/v1/sessions/:id/export", export_session});
    routes.push_back({"POST", "/v1/sessions/import", import_session});
}

}  // namespace stet::server
