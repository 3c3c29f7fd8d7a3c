// llama-server's slots: what runs where, and saving, restoring and erasing what a slot holds.
#include <fmt/format.h>

#include <charconv>

#include "base/try.h"
#include "server/context.h"
#include "server/json.h"

namespace stet::server {
namespace {

// A file that can't be restored is the caller's to correct, whatever is wrong with it.
Failure restore_failure(const Status& status) {
    const int http = http_status(status.code());
    constexpr int kServerFault = 500;
    return http_failure(http < kServerFault || status.code() == Code::corruption ? 400 : http,
                        status.to_string());
}

Status list(Call& call) {
    if (call.context.settings.no_slots) {
        return Status(Code::unimplemented, "this server was started with --no-slots");
    }
    call.context.loop->call([call] {
        const auto slots = call.context.loop->slots(call.tenant);
        Json json = Json::array();
        bool has_idle = false;
        for (const SlotInfo& slot : slots) {
            has_idle = has_idle || !slot.is_busy;
            Json entry = {{"id", slot.id},
                          {"n_ctx", call.context.engine->context()},
                          {"speculative", false},
                          {"is_processing", slot.is_busy},
                          {"n_state_tokens", slot.state_tokens}};
            if (slot.jobs > 0) {
                entry["id_task"] = slot.jobs;
                entry["n_prompt_tokens"] = slot.prompt_tokens;
                entry["n_prompt_tokens_processed"] = slot.prompt_tokens - slot.reused_tokens;
                entry["n_prompt_tokens_cache"] = slot.reused_tokens;
                entry["next_token"] = Json::array(
                    {{{"has_next_token", slot.is_busy}, {"n_decoded", slot.decoded_tokens}}});
            }
            json.push_back(std::move(entry));
        }
        if (!has_idle && !call.request.query_value("fail_on_no_slot").empty()) {
            return call.send_failure(http_failure(503, "no slot available"));
        }
        call.send_json(json);
    });
    return {};
}

Result<std::uint32_t> slot_of(const Call& call) {
    const std::string& text = call.parameters.at(0);
    std::uint32_t id = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), id);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() ||
        id >= call.context.loop->slot_count()) {
        return Status(Code::invalid_argument,
                      fmt::format("Invalid slot ID: there are slots 0 to {}",
                                  call.context.loop->slot_count() - 1));
    }
    return id;
}

// The sequence is a value: what it is saved from may go on meanwhile.
void save(const Call& call, std::uint32_t slot, const std::string& name) {
    const auto held = call.context.loop->slot_sequence(slot, call.tenant);
    if (!held) return call.send_failure(failure_of(held.status()));
    const Status queued = call.context.slot_files->save(
        call.tenant, name, *held, [call, slot, name](const Result<SlotFile>& saved) {
            if (!saved) return call.send_failure(failure_of(saved.status()));
            call.send_json({{"id_slot", slot},
                            {"filename", name},
                            {"n_saved", saved->tokens},
                            {"n_written", saved->bytes},
                            {"timings", {{"save_ms", saved->ms}}}});
        });
    if (!queued) call.send_failure(failure_of(queued));
}

// The slot changes only once the whole file is read and proven.
void put(const Call& call, std::uint32_t slot, const std::string& name,
         const RestoredSlot& restored) {
    const Status status =
        call.context.loop->set_slot_sequence(slot, call.tenant, restored.sequence);
    if (!status) return call.send_failure(failure_of(status));
    call.send_json({{"id_slot", slot},
                    {"filename", name},
                    {"n_restored", restored.file.tokens},
                    {"n_read", restored.file.bytes},
                    {"timings", {{"restore_ms", restored.file.ms}}}});
}

Status restore(const Call& call, std::uint32_t slot, const std::string& name) {
    return call.context.slot_files->restore(
        call.tenant, name, [call, slot, name](Result<RestoredSlot> restored) {
            if (!restored) return call.send_failure(restore_failure(restored.status()));
            auto shared = std::make_shared<RestoredSlot>(std::move(restored).value());
            call.context.loop->call_when_idle(
                slot, [call, slot, name, shared] { put(call, slot, name, *shared); });
        });
}

void erase(const Call& call, std::uint32_t slot) {
    EngineLoop& loop = *call.context.loop;
    const auto held = loop.slot_sequence(slot, call.tenant);
    if (!held) return call.send_failure(failure_of(held.status()));
    const Status status = loop.set_slot_sequence(
        slot, call.tenant, state::Sequence::empty(call.context.engine->schema()));
    if (!status) return call.send_failure(failure_of(status));
    call.send_json({{"id_slot", slot}, {"n_erased", held->position()}});
}

Result<std::string> file_name_of(const Call& call) {
    STET_ASSIGN(const Json body, parse_object(call.request.body));
    Fields fields(body);
    std::string name;
    fields.require("filename");
    fields.text("filename", name);
    STET_TRY(fields.status());
    STET_TRY(check_file_name(name));
    return name;
}

Status act(Call& call) {
    const Context& context = call.context;
    if (context.slot_files == nullptr) {
        return Status(Code::unimplemented,
                      "this server was started without --slot-save-path, which slot actions need");
    }
    STET_ASSIGN(const std::uint32_t slot, slot_of(call));
    const std::string_view action = call.request.query_value("action");
    if (action == "erase") {
        context.loop->call_when_idle(slot, [call, slot] { erase(call, slot); });
        return {};
    }
    if (action != "save" && action != "restore") {
        return Status(Code::invalid_argument, "Invalid action: it is save, restore or erase");
    }
    STET_ASSIGN(const std::string name, file_name_of(call));
    if (action == "restore") return restore(call, slot, name);
    context.loop->call_when_idle(slot, [call, slot, name] { save(call, slot, name); });
    return {};
}

}  // namespace

void add_slot_routes(std::vector<Route>& routes) {
    routes.push_back({"GET", "/slots", list});
    routes.push_back({"POST", "/slots/:id", act});
}

}  // namespace stet::server
