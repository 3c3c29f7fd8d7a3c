#include "state/import/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/try.h"
#include "state/extent.h"
#include "state/import/parse.h"
#include "state/import/plan.h"

namespace stet::state {

using memory::Group;
using memory::kPageRows;

namespace {

using llama::DirectSource;
using llama::kNoCell;
using llama::Parsed;
using llama::RowSource;
using llama::SequencePlan;

// Copies the rows of one sequence into a stage.
class Builder {
  public:
    Builder(const Parsed& parsed, const SequencePlan& plan, memory::PagePool& pool)
        : parsed_(parsed), plan_(plan), pool_(pool), sources_(pool.schema().groups.size()) {
        for (std::size_t g = 0; g < sources_.size(); ++g) {
            sources_[g].resize(pool.schema().groups[g].planes.size());
        }
        for (std::size_t part = 0; part < plan.parts.size(); ++part) {
            const llama::CellIndex& index = plan.parts[part];
            if (index.stream == nullptr) continue;
            for (const RowSource& source : index.stream->sources) {
                at(source.plane) = {.cells = &index.cells, .rows = &source};
            }
        }
        if (parsed.recurrent) {
            for (const RowSource& source : parsed.recurrent->sources) {
                at(source.plane) = {.rows = &source};
            }
        }
        for (const DirectSource& source : parsed.direct) at(source.plane) = {.direct = &source};
    }

    Result<Sequence> build() {
        Stage stage(pool_, plan_.tokens);
        const std::uint64_t position = plan_.tokens.size();
        for (std::size_t g = 0; g < sources_.size(); ++g) {
            const Group& group = pool_.schema().groups[g];
            if (!group.is_paged()) {
                if (position > 0) STET_TRY(put_block(stage, g));
                continue;
            }
            const std::uint64_t end = group.rows_at(position);
            std::uint64_t row = group.first_needed_row(position);
            while (row < end) {
                const std::uint64_t next = std::min(end, (row / kPageRows + 1) * kPageRows);
                STET_TRY(put_rows(stage, g, row, next));
                row = next;
            }
        }
        return std::move(stage).finish();
    }

  private:
    struct Source {
        const std::vector<std::uint32_t>* cells = nullptr;  // by position
        const RowSource* rows = nullptr;
        const DirectSource* direct = nullptr;
    };

    Source& at(const llama::PlaneRef& ref) { return sources_[ref.group][ref.plane]; }

    Status put_block(Stage& stage, std::size_t g) {
        const Group& group = pool_.schema().groups[g];
        std::vector<std::byte> block(group.page_bytes());
        std::byte* to = block.data();
        for (std::size_t p = 0; p < group.planes.size(); ++p) {
            const std::uint64_t size = group.planes[p].row_bytes;
            const Source& source = sources_[g][p];
            const std::byte* from =
                source.direct != nullptr
                    ? source.direct->data + plan_.direct_stream * size
                    : source.rows->rows + plan_.recurrent_cell * source.rows->stride;
            std::memcpy(to, from, size);
            to += size;
        }
        return stage.put({g, 0, 0, block.size(), {}}, block);
    }

    Status put_rows(Stage& stage, std::size_t g, std::uint64_t begin, std::uint64_t end) {
        const Group& group = pool_.schema().groups[g];
        std::vector<std::byte> payload((end - begin) * group.row_bytes());
        std::byte* to = payload.data();
        for (std::size_t p = 0; p < group.planes.size(); ++p) {
            for (std::uint64_t row = begin; row < end; ++row) {
                copy_row(group, g, p, row, to);
                to += group.planes[p].row_bytes;
            }
        }
        return stage.put({g, begin, end, payload.size(), {}}, payload);
    }

    void copy_row(const Group& group, std::size_t g, std::size_t p, std::uint64_t row,
                  std::byte* to) const {
        const std::uint64_t size = group.planes[p].row_bytes;
        const Source& source = sources_[g][p];
        if (source.direct != nullptr) {
            const std::uint64_t first = plan_.direct_stream * source.direct->rows;
            std::memcpy(to, source.direct->data + (first + row) * size, size);
            return;
        }
        // A pooled row lies in the cell of its pool's last token.
        const bool is_pooled = group.lifetime == memory::Lifetime::every;
        const std::uint64_t position = is_pooled ? (row + 1) * group.parameter - 1 : row;
        const std::uint32_t cell = (*source.cells)[position];
        if (cell == kNoCell) return;  // before the chunk: nothing reads it
        const RowSource& rows = *source.rows;
        const std::byte* from = rows.rows + cell * rows.stride;
        if (rows.element_bytes == 0) {
            std::memcpy(to, from, size);
            return;
        }
        for (std::uint64_t done = 0; done < size; done += rows.element_bytes) {
            std::memcpy(to + done, from, rows.element_bytes);
            from += rows.column_stride;
        }
    }

    const Parsed& parsed_;
    const SequencePlan& plan_;
    memory::PagePool& pool_;
    std::vector<std::vector<Source>> sources_;  // by group and plane
};

Result<ImportSummary> check(const Parsed& parsed, const std::string& name,
                            const ImportTarget& target, const memory::Schema& schema,
                            const KnownTokens& known) {
    ImportSummary summary{parsed.kind, {}};
    for (const std::int32_t id : llama::sequence_ids(parsed)) {
        STET_ASSIGN(const auto plan, llama::plan_sequence(parsed, id, name, target, schema, known));
        summary.sequences.push_back({id, plan.tokens.size()});
    }
    return summary;
}

}  // namespace

std::string_view import_kind_name(ImportKind kind) {
    constexpr std::array<std::string_view, 3> kNames = {"sequence", "session", "slot"};
    return kNames.at(static_cast<std::size_t>(kind));
}

Result<ImportSummary> check_llama_state(std::span<const std::byte> file, const std::string& name,
                                        const ImportTarget& target, const memory::Schema& schema,
                                        const KnownTokens& known) {
    STET_ASSIGN(const Parsed parsed, llama::parse(file, name, target, schema));
    return check(parsed, name, target, schema, known);
}

Result<Imported> import_llama_state(std::span<const std::byte> file, const std::string& name,
                                    const ImportTarget& target, memory::PagePool& pool,
                                    const KnownTokens& known) {
    const memory::Schema& schema = pool.schema();
    STET_ASSIGN(const Parsed parsed, llama::parse(file, name, target, schema));
    STET_ASSIGN(const ImportSummary summary, check(parsed, name, target, schema, known));
    Imported imported{summary.kind, {}};
    for (const ImportSummary::Entry& entry : summary.sequences) {
        STET_ASSIGN(const auto plan,
                    llama::plan_sequence(parsed, entry.id, name, target, schema, known));
        auto sequence = Builder(parsed, plan, pool).build();
        if (!sequence) return sequence.status().with_context(name);
        imported.sequences.push_back({entry.id, std::move(sequence).value()});
    }
    return imported;
}

}  // namespace stet::state
