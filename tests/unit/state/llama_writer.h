// Writes llama.cpp state files for any schema: the counterpart of the importer, independent of it.
// Every row is a function of where it stands, so that a reader can tell each from all others.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "memory/schema.h"
#include "state/import/import.h"
#include "state/sequence.h"

namespace stet::state::test {

using RowBytes = std::vector<std::byte>;

// A row of a plane (a fixed plane's block is row 0), different for each of `salt`'s values.
inline RowBytes llama_row(const memory::Schema& schema, std::size_t group, std::size_t plane,
                          std::uint64_t row, std::uint32_t salt = 0) {
    std::uint64_t state = ((group * 31 + plane) * 100003 + row) * 257 + salt;
    RowBytes bytes(schema.groups[group].planes[plane].row_bytes);
    for (std::byte& byte : bytes) {  // splitmix64
        std::uint64_t z = state += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        byte = static_cast<std::byte>(z ^ (z >> 31));
    }
    return bytes;
}

struct LlamaCell {
    std::int32_t position = 0;
    std::vector<std::int32_t> ids = {0};
    std::uint32_t salt = 0;
};

// Cells of sequence `id` at [from, to), in an order of its own for each seed (0: ascending).
inline std::vector<LlamaCell> llama_cells(std::uint64_t from, std::uint64_t to, std::uint32_t seed,
                                          std::vector<std::int32_t> ids = {0},
                                          std::uint32_t salt = 0) {
    std::vector<LlamaCell> cells;
    for (std::uint64_t p = from; p < to; ++p) {
        cells.push_back({static_cast<std::int32_t>(p), ids, salt});
    }
    std::mt19937 random(seed);
    if (seed != 0) std::shuffle(cells.begin(), cells.end(), random);
    return cells;
}

struct LlamaFile {
    ImportKind kind = ImportKind::sequence;
    std::string architecture = "llama";
    std::uint32_t layers = 4;
    std::vector<Token> tokens;
    std::vector<std::vector<LlamaCell>> streams;  // of the caches that keep every token
    std::vector<std::vector<LlamaCell>> window;   // of the window's; empty: the same
    std::vector<LlamaCell> recurrent;             // position: of the last token
    bool is_transposed = false;                   // V
    bool has_extension = false;                   // of cells
    bool has_indexer_v = false;                   // rows that nobody reads
    bool has_empty_window = false;                // a window cache without layers
    bool has_empty_attention = false;
    std::uint32_t indexer_rotation = 0;  // of K
    std::uint32_t dsv4_streams = 1;
    // Sees each field before it is written and may answer another value.
    std::function<std::int64_t(std::string_view field, std::int64_t value)> change;
};

class LlamaWriter {
  public:
    LlamaWriter(const memory::Schema& schema, const LlamaFile& file)
        : schema_(schema), file_(file) {}

    std::vector<std::byte> write() {
        const bool is_session = file_.kind == ImportKind::session;
        put<std::uint32_t>("magic", is_session ? 0x6767736e : 0x67677371);
        put<std::uint32_t>("version", is_session ? 11 : 4);
        write_tokens();
        if (is_session) {
            put<std::uint32_t>("name size", static_cast<std::int64_t>(file_.architecture.size()));
            for (const char c : file_.architecture) put<char>("name", c);
        }
        if (has("compressor")) {
            put<std::uint32_t>("dsv4 magic", 0x34565344);
            put<std::uint32_t>("dsv4 version", 1);
            put<std::uint32_t>("dsv4 mode", 0);
        }
        write_parts();
        return out_.take();
    }

    // Bytes that a reader can check, as [from, to).
    const std::vector<std::pair<std::size_t, std::size_t>>& checked() const { return checked_; }

  private:
    struct Layer {
        std::map<std::string, std::pair<std::size_t, std::size_t>> planes;  // name -> group, plane
    };
    using Layers = std::map<std::int32_t, Layer>;

    template <typename T>
    void put(std::string_view field, std::int64_t value, bool is_checked = true) {
        if (file_.change) value = file_.change(field, value);
        const std::size_t from = out_.data().size();
        out_.write(static_cast<T>(value));
        if (is_checked) checked_.emplace_back(from, out_.data().size());
    }

    bool has(std::string_view name) const {
        return std::ranges::any_of(schema_.groups, [&](const auto& g) { return g.name == name; });
    }

    Layers layers_of(std::string_view name) const {
        Layers layers;
        for (std::size_t g = 0; g < schema_.groups.size(); ++g) {
            const memory::Group& group = schema_.groups[g];
            if (group.name != name) continue;
            for (std::size_t p = 0; p < group.planes.size(); ++p) {
                layers[group.planes[p].layer].planes[group.planes[p].name] = {g, p};
            }
        }
        return layers;
    }

    void write_tokens() {
        const auto count = static_cast<std::int64_t>(file_.tokens.size());
        if (file_.kind == ImportKind::slot) {
            put<std::uint32_t>("token count", count + 4);
            put<std::int32_t>("slot mark", -1);
            put<std::uint32_t>("slot version", 1);
            put<std::uint32_t>("slot tokens", count);
        } else {
            put<std::uint32_t>("token count", count);
        }
        for (const Token token : file_.tokens) put<Token>("token", token, false);
        if (file_.kind == ImportKind::slot) put<std::uint32_t>("media", 0);
    }

    void write_parts() {
        const bool has_cells = has("attention") || has("window") || has("indexer");
        if (has_cells || file_.has_empty_attention)
            write_cells(layers_of("attention"), file_.streams);
        if (has("indexer") && !has("recurrent")) write_indexer();
        if (has("window") || has("compressor") || file_.has_empty_window) {
            write_cells(layers_of("window"), file_.window.empty() ? file_.streams : file_.window);
        }
        if (has("recurrent")) write_recurrent();
        if (has("indexer") && has("recurrent")) write_indexer();
        if (has("compressor")) write_dsv4();
    }

    void write_indexer() {
        Layers layers = layers_of("indexer");
        for (auto& [index, layer] : layers_of("pooled")) {
            layers[index].planes["pooled"] = layer.planes["k"];
        }
        is_indexer_ = true;
        write_cells(layers, file_.streams);
        is_indexer_ = false;
    }

    void write_cells(const Layers& layers, const std::vector<std::vector<LlamaCell>>& streams) {
        put<std::uint32_t>("streams", static_cast<std::int64_t>(streams.size()));
        for (const auto& cells : streams) {
            put<std::uint32_t>("cell count", static_cast<std::int64_t>(cells.size()));
            if (cells.empty()) continue;
            for (const LlamaCell& cell : cells) write_cell(cell);
            const bool has_v = !layers.empty() && layers.begin()->second.planes.contains("v");
            put<std::uint32_t>("V transposed", file_.is_transposed ? 1 : 0, has_v);
            put<std::uint32_t>("layers", static_cast<std::int64_t>(layers.size()));
            put<std::uint32_t>(is_indexer_ ? "indexer rotation" : "rotation",
                               is_indexer_ ? file_.indexer_rotation : 0);
            put<std::uint32_t>("V rotation", 0);
            for (const auto& [index, layer] : layers) write_k(layer, cells);
            for (const auto& [index, layer] : layers) write_v(layer, cells);
        }
    }

    void write_cell(const LlamaCell& cell) {
        put<std::int32_t>("position", cell.position);
        put<std::uint32_t>("sequences", static_cast<std::int64_t>(cell.ids.size()));
        if (file_.has_extension) {
            put<std::int32_t>("x", cell.position);
            put<std::int32_t>("y", cell.position);
            put<std::int32_t>("cell token", file_.tokens[static_cast<std::size_t>(cell.position)]);
        }
        for (const std::int32_t id : cell.ids) put<std::int32_t>("sequence id", id, false);
    }

    void write_row(std::pair<std::size_t, std::size_t> plane, std::uint64_t row,
                   std::uint32_t salt) {
        out_.write_bytes(llama_row(schema_, plane.first, plane.second, row, salt));
    }

    // key, gate and pooled side by side; the pooled row stands in the pool's last cell.
    void write_k(const Layer& layer, const std::vector<LlamaCell>& cells) {
        std::vector<std::pair<std::size_t, std::size_t>> columns;
        for (const char* name : {"k", "gate", "pooled"}) {
            if (layer.planes.contains(name)) columns.push_back(layer.planes.at(name));
        }
        std::uint64_t row_bytes = 0;
        for (const auto& [g, p] : columns) row_bytes += schema_.groups[g].planes[p].row_bytes;
        put<std::int32_t>("K type", 1);
        put<std::uint64_t>("K row", static_cast<std::int64_t>(row_bytes));
        for (const LlamaCell& cell : cells) {
            for (const auto& column : columns) {
                const memory::Group& group = schema_.groups[column.first];
                std::uint64_t row = static_cast<std::uint64_t>(cell.position);
                if (group.lifetime == memory::Lifetime::every) row = row / group.parameter;
                const bool is_last =
                    group.lifetime != memory::Lifetime::every ||
                    (static_cast<std::uint64_t>(cell.position) + 1) % group.parameter == 0;
                write_row(column, row, is_last ? cell.salt : ~0U);
            }
        }
    }

    void write_v(const Layer& layer, const std::vector<LlamaCell>& cells) {
        if (!layer.planes.contains("v")) {
            if (is_indexer_ && file_.has_indexer_v) {
                put<std::int32_t>("ignored V type", 1, false);
                if (file_.is_transposed) {
                    put<std::uint32_t>("ignored V element", 2);
                    put<std::uint32_t>("ignored V elements", 3);
                } else {
                    put<std::uint64_t>("ignored V row", 6);
                }
                out_.write_bytes(std::vector<std::byte>(6 * cells.size()));
            }
            return;
        }
        const auto [g, p] = layer.planes.at("v");
        const memory::Plane& plane = schema_.groups[g].planes[p];
        put<std::int32_t>("V type", 1);
        if (!file_.is_transposed) {
            put<std::uint64_t>("V row", static_cast<std::int64_t>(plane.row_bytes));
            for (const LlamaCell& cell : cells) {
                write_row({g, p}, static_cast<std::uint64_t>(cell.position), cell.salt);
            }
            return;
        }
        put<std::uint32_t>("V element", 2);
        put<std::uint32_t>("V elements", plane.elements);
        for (std::size_t e = 0; e < plane.elements; ++e) {
            for (const LlamaCell& cell : cells) {
                const RowBytes row =
                    llama_row(schema_, g, p, static_cast<std::uint64_t>(cell.position), cell.salt);
                out_.write_bytes(std::span(row).subspan(e * 2, 2));
            }
        }
    }

    void write_recurrent() {
        const bool is_session = file_.kind == ImportKind::session;
        put<std::uint32_t>("recurrent cells", static_cast<std::int64_t>(file_.recurrent.size()));
        for (const LlamaCell& cell : file_.recurrent) {
            put<std::int32_t>("recurrent position", cell.position);
            put<std::uint32_t>("recurrent sequences",
                               is_session ? static_cast<std::int64_t>(cell.ids.size()) : 0);
            if (!is_session) continue;
            for (const std::int32_t id : cell.ids) put<std::int32_t>("sequence id", id, false);
        }
        put<std::uint32_t>("recurrent layout", 0);
        put<std::uint32_t>("recurrent layers", file_.layers);
        const Layers layers = layers_of("recurrent");
        for (const auto& [index, layer] : layers) {
            write_blocks(layer, "r", true);
            if (layer.planes.contains("p")) write_blocks(layer, "p", false);
        }
        for (const auto& [index, layer] : layers) write_blocks(layer, "s", true);
    }

    void write_blocks(const Layer& layer, const std::string& name, bool has_type) {
        if (has_type) put<std::int32_t>("recurrent type", 0, layer.planes.contains(name));
        if (!layer.planes.contains(name)) return put<std::uint64_t>("recurrent row", 0);
        const auto [g, p] = layer.planes.at(name);
        put<std::uint64_t>("recurrent row",
                           static_cast<std::int64_t>(schema_.groups[g].planes[p].row_bytes));
        for (const LlamaCell& cell : file_.recurrent) write_row({g, p}, 0, cell.salt);
    }

    void write_tensor(std::pair<std::size_t, std::size_t> plane, std::int32_t type,
                      std::uint64_t width, std::uint64_t rows) {
        const memory::Plane& shape = schema_.groups[plane.first].planes[plane.second];
        const bool is_fixed = !schema_.groups[plane.first].is_paged();
        put<std::int32_t>("tensor type", type);
        put<std::uint64_t>("tensor width", static_cast<std::int64_t>(width));
        put<std::uint64_t>("tensor rows", static_cast<std::int64_t>(rows));
        put<std::uint64_t>("tensor row",
                           static_cast<std::int64_t>(memory::row_bytes(shape.type, width)));
        for (std::uint32_t s = 0; s < file_.dsv4_streams; ++s) {
            if (is_fixed) {
                write_row(plane, 0, s);
                continue;
            }
            for (std::uint64_t row = 0; row < rows; ++row) write_row(plane, row, s);
        }
    }

    void write_dsv4() {
        const std::array<std::pair<std::string, std::string>, 3> parts = {
            {{"compressed4", "csa"}, {"compressed128", "hca"}, {"indexer4", "lid"}}};
        for (const auto& [group, part] : parts) {
            const Layers layers = layers_of(group);
            const std::uint64_t ratio = part == "hca" ? 128 : 4;
            const std::uint64_t rows = file_.tokens.size() / ratio;
            put<std::uint32_t>("cache version", 2);
            put<std::uint32_t>("cache rows", static_cast<std::int64_t>(rows), !layers.empty());
            put<std::uint32_t>("dsv4 streams", file_.dsv4_streams, rows > 0 && !layers.empty());
            put<std::uint32_t>("dsv4 layers", static_cast<std::int64_t>(layers.size()));
            for (const auto& [index, layer] : layers) {
                const auto plane = layer.planes.at("k");
                put<std::uint32_t>("layer", index);
                write_tensor(plane, 1, schema_.groups[plane.first].planes[plane.second].elements,
                             rows);
            }
        }
        const Layers states = layers_of("compressor");
        for (const auto& [group, part] : parts) {
            Layers layers = states;
            std::erase_if(layers, [name = part + "_kv"](const auto& l) {
                return !l.second.planes.contains(name);
            });
            put<std::uint32_t>("compressor version", 1);
            put<std::uint32_t>("ratio", part == "hca" ? 128 : 4);
            put<std::uint32_t>("state rows", kStateRows, !layers.empty());
            put<std::uint32_t>("state width", kStateWidth, !layers.empty());
            put<std::uint32_t>("dsv4 streams", file_.dsv4_streams, !layers.empty());
            put<std::uint32_t>("dsv4 layers", static_cast<std::int64_t>(layers.size()));
            for (const auto& [index, layer] : layers) {
                put<std::uint32_t>("layer", index);
                write_tensor(layer.planes.at(part + "_kv"), 0, kStateWidth, kStateRows);
                write_tensor(layer.planes.at(part + "_score"), 0, kStateWidth, kStateRows);
            }
        }
    }

  public:
    // Of each compressor state.
    static constexpr std::uint32_t kStateRows = 8;
    static constexpr std::uint32_t kStateWidth = 3;

  private:
    const memory::Schema& schema_;
    const LlamaFile& file_;
    Writer out_;
    std::vector<std::pair<std::size_t, std::size_t>> checked_;
    bool is_indexer_ = false;
};

}  // namespace stet::state::test
