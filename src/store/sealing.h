// What an encrypted store keeps sealed, and with which keys.
//
//   sealed     payloads of records; of each turn: tokens, content, sampler
//   as it is   names of sessions, models and their files; times, counts, sizes; who shares a record
//
// A store draws a salt when it is made, so stores that share a key share nothing else (a server
// has a store for each tenant). From key and salt come three keys: for records, for turns, and for
// the salt of page ids, without which an id could be looked up for a text that somebody guesses.
// The catalogue's row `meta.sealing` holds the salt and what tells the right key from others.
//
// Thread rules: const calls may come from any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cipher.h"
#include "base/hash.h"
#include "stet/status.h"

namespace stet::store {

// The key of a store, given by its digits or by a file; none when both are empty.
// invalid_argument when neither is.
Result<std::optional<SecretKey>> store_key(Env& env, std::string_view digits,
                                           const std::filesystem::path& file);

class Sealing {
  public:
    Sealing() = default;  // nothing is sealed
    // Of a new store.
    static Result<Sealing> create(const SecretKey& key);
    // Of a store with this row. Without a key what is sealed can't be opened, the rest is readable.
    // incompatible: another key; corruption: the row is damaged.
    static Result<Sealing> open(std::string_view row, const std::optional<SecretKey>& key);

    bool is_sealed() const { return !row_.empty(); }
    // incompatible when something is sealed and the key is not known.
    Status require_key() const;
    const std::string& row() const { return row_; }

    // `tenant`, or in a sealed store what stands for it in page ids.
    std::string id_salt(std::string_view tenant) const;

    // In place. The seal is zeroes in a store that isn't sealed.
    Result<Seal> seal_record(std::span<std::byte> payload, const Hash256& key) const;
    Status open_record(std::span<std::byte> payload, const Seal& seal, const Hash256& key) const;

    // The content of a turn, which has the id `turn`: plain bytes to sealed ones and back.
    Result<std::vector<std::byte>> seal_turn(std::vector<std::byte> plain, std::int64_t turn) const;
    Result<std::vector<std::byte>> open_turn(std::span<const std::byte> sealed,
                                             std::int64_t turn) const;

  private:
    struct Keys {
        Cipher records;
        Cipher turns;
        SecretKey ids;
    };
    static Keys keys_of(const SecretKey& key, std::span<const std::byte> salt);

    std::string row_;
    std::optional<Keys> keys_;
};

}  // namespace stet::store
