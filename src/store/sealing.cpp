#include "store/sealing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/bytes.h"
#include "base/try.h"

namespace stet::store {
namespace {

constexpr std::string_view kMethod = "aes-256-gcm";
constexpr std::size_t kParts = 4;  // method, salt, check of the key, checksum

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

std::string check_of(const SecretKey& key, std::string_view salt) {
    return key.derive("check", bytes_of(salt)).check().hex();
}

std::string row_of(std::string_view salt, std::string_view check) {
    const std::string content = fmt::format("{} {} {}", kMethod, salt, check);
    return fmt::format("{} {}", content, xxh3_128(bytes_of(content)).hex());
}

std::vector<std::byte> context_of(const Hash256& key) {
    Writer writer;
    writer.write_string("record");
    writer.write_bytes(std::as_bytes(std::span(key.bytes)));
    return writer.take();
}

std::vector<std::byte> context_of(std::int64_t turn) {
    Writer writer;
    writer.write_string("turn");
    writer.write(turn);
    return writer.take();
}

}  // namespace

Result<std::optional<SecretKey>> store_key(Env& env, std::string_view digits,
                                           const std::filesystem::path& file) {
    if (digits.empty() && file.empty()) return std::optional<SecretKey>();
    if (!digits.empty() && !file.empty()) {
        return Status(Code::invalid_argument,
                      "the store's key is given twice, by STET_STORE_KEY and by a file: give it "
                      "once");
    }
    STET_ASSIGN(SecretKey key, digits.empty() ? SecretKey::read(env, file)
                                              : SecretKey::parse(digits, "STET_STORE_KEY"));
    return std::optional(std::move(key));
}

Sealing::Keys Sealing::keys_of(const SecretKey& key, std::span<const std::byte> salt) {
    return {Cipher(key.derive("records", salt)), Cipher(key.derive("turns", salt)),
            key.derive("page ids", salt)};
}

Result<Sealing> Sealing::create(const SecretKey& key) {
    Hash128 salt;
    STET_TRY(fill_random(salt.bytes));
    Sealing sealing;
    const std::string hex = salt.hex();
    sealing.row_ = row_of(hex, check_of(key, hex));
    sealing.keys_ = keys_of(key, bytes_of(hex));
    return sealing;
}

Result<Sealing> Sealing::open(std::string_view row, const std::optional<SecretKey>& key) {
    std::array<std::string_view, kParts> parts;
    std::string_view rest = row;
    for (std::string_view& part : parts) {
        part = rest.substr(0, rest.find(' '));
        rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    }
    const auto& [method, salt, check, checksum] = parts;
    if (method != kMethod || row != row_of(salt, check)) {
        return Status(Code::corruption, "the row that says how it is encrypted is damaged");
    }
    Sealing sealing;
    sealing.row_ = row;
    if (!key) return sealing;
    if (check_of(*key, salt) != check) {
        return Status(Code::incompatible, "is encrypted with another key than the one given");
    }
    sealing.keys_ = keys_of(*key, bytes_of(salt));
    return sealing;
}

Status Sealing::require_key() const {
    if (!is_sealed() || keys_) return {};
    return Status(Code::incompatible,
                  "is encrypted: give its key with --store-key-file FILE or in STET_STORE_KEY");
}

std::string Sealing::id_salt(std::string_view tenant) const {
    if (!keys_) return std::string(tenant);
    return keys_->ids.derive("tenant", bytes_of(tenant)).check().hex();
}

Result<Seal> Sealing::seal_record(std::span<std::byte> payload, const Hash256& key) const {
    if (!is_sealed()) return Seal();
    STET_TRY(require_key());
    return keys_->records.seal(payload, context_of(key));
}

Status Sealing::open_record(std::span<std::byte> payload, const Seal& seal,
                            const Hash256& key) const {
    if (!is_sealed()) {
        if (seal == Seal()) return {};
        return Status(Code::corruption, "is sealed, in a store that is not");
    }
    STET_TRY(require_key());
    return keys_->records.open(payload, seal, context_of(key));
}

Result<std::vector<std::byte>> Sealing::seal_turn(std::vector<std::byte> plain,
                                                  std::int64_t turn) const {
    STET_TRY(require_key());
    STET_ASSIGN(const Seal seal, keys_->turns.seal(plain, context_of(turn)));
    const auto nonce = std::as_bytes(std::span(seal.nonce));
    const auto tag = std::as_bytes(std::span(seal.tag));
    plain.insert(plain.end(), nonce.begin(), nonce.end());
    plain.insert(plain.end(), tag.begin(), tag.end());
    return plain;
}

Result<std::vector<std::byte>> Sealing::open_turn(std::span<const std::byte> sealed,
                                                  std::int64_t turn) const {
    STET_TRY(require_key());
    if (sealed.size() < kSealBytes) return Status(Code::corruption, "sealed content is cut short");
    std::vector<std::byte> plain(sealed.begin(), sealed.end() - kSealBytes);
    Seal seal;
    const std::byte* const at = sealed.data() + plain.size();
    std::memcpy(seal.nonce.data(), at, seal.nonce.size());
    std::memcpy(seal.tag.data(), at + seal.nonce.size(), seal.tag.size());
    STET_TRY(keys_->turns.open(plain, seal, context_of(turn)));
    return plain;
}

}  // namespace stet::store
