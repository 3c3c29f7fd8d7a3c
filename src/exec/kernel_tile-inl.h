// Many lanes (prompts): pages are converted to f32 once for a tile of lanes, and scores and sums
// are matrix products. Lanes lie side by side in vectors, so softmax needs no sums across a vector
// and neither K nor V is transposed:
//   scores[row][lane] = K[row][.] * Q[.][lane]        sums[column][lane] += V[.][column] *
//   W[.][lane]
#if defined(STET_EXEC_KERNEL_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef STET_EXEC_KERNEL_TILE_INL_H
#undef STET_EXEC_KERNEL_TILE_INL_H
#else
#define STET_EXEC_KERNEL_TILE_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace stet::exec::HWY_NAMESPACE {

// A product's registers: kTileRows x kPanelVectors sums. 8 x 3 of 32 registers, 4 x 3 of 16.
inline constexpr std::size_t kTileRows = kManyRegisters ? 8 : 4;
inline constexpr std::size_t kPanelVectors = 3;
inline constexpr std::size_t kColumnStep = std::max(kTileRows, kLanes);  // both are powers of two
inline constexpr std::size_t kPanelLanes = kPanelVectors * kLanes;

// c[i][lane] = (kAdd ? c[i][lane] * correction[lane] : 0) + sum_k a[i, k] * b[k][lane], for
// kTileRows rows i and kVectors vectors of lanes. a[i, k] is a[i * row_step + k * step], of which
// kAdd tells: row_step 1 (columns of V) or step 1 (rows of K). b and c have kVectors * kLanes
// lanes.
template <std::size_t kVectors, bool kAdd>
HWY_INLINE void multiply_tile(const float* a, std::size_t a_stride, const float* b,
                              std::size_t depth, const float* correction, float* c) {
    const D d;
    constexpr std::size_t kStride = kVectors * kLanes;
    const std::size_t row_step = kAdd ? 1 : a_stride;
    const std::size_t step = kAdd ? a_stride : 1;
    V acc[kTileRows][kVectors];
    for (std::size_t i = 0; i < kTileRows; ++i) {
        for (std::size_t v = 0; v < kVectors; ++v) {
            acc[i][v] = kAdd ? hn::Mul(hn::Load(d, c + i * kStride + v * kLanes),
                                       hn::Load(d, correction + v * kLanes))
                             : hn::Zero(d);
        }
    }
    for (std::size_t k = 0; k < depth; ++k) {
        V bv[kVectors];
        for (std::size_t v = 0; v < kVectors; ++v) {
            bv[v] = hn::Load(d, b + k * kStride + v * kLanes);
        }
        for (std::size_t i = 0; i < kTileRows; ++i) {
            const V av = hn::Set(d, a[i * row_step + k * step]);
            for (std::size_t v = 0; v < kVectors; ++v) {
                acc[i][v] = hn::MulAdd(av, bv[v], acc[i][v]);
            }
        }
    }
    for (std::size_t i = 0; i < kTileRows; ++i) {
        for (std::size_t v = 0; v < kVectors; ++v) {
            hn::Store(acc[i][v], d, c + i * kStride + v * kLanes);
        }
    }
}

// Up to kPanelLanes lanes of a tile. Buffers are [..][vectors * kLanes].
struct Panel {
    std::size_t lane;   // first, in the tile
    std::size_t lanes;  // that count
    std::size_t vectors;
    float* q;                // [key_size]
    float* sums;             // [v_stride]
    float* max;              // [1]
    float* weight;           // [1]
    float* slope;            // [1], in base 2
    std::int32_t* begin;     // [1], visible rows relative to the item's first
    std::int32_t* end;       // [1]
    std::int32_t* stand;     // [1], where the query itself stands
    std::int64_t first_row;  // what any lane sees, likewise
    std::int64_t last_row;
    std::int64_t shared_first_row;  // what all lanes see
    std::int64_t shared_last_row;
};

// The rows of one K/V head in the page that comes next, asked for a few at a time.
struct NextRows {
    const std::uint8_t* at = nullptr;
    std::size_t row_bytes = 0;
    std::size_t bytes = 0;  // of the head in a row
    std::size_t left = 0;

    HWY_INLINE void fetch(std::size_t rows) {
        for (rows = std::min(rows, left), left -= rows; rows > 0; --rows, at += row_bytes) {
            for (std::size_t i = 0; i < bytes; i += 64) {
                prefetch(at + i);
            }
        }
    }
};

struct TileState {
    const ItemTask* task;
    NextRows next_k;
    NextRows next_v;
    float* k;           // [kPageRows + kTileRows][k_stride]
    float* v;           // [kPageRows][v_stride]; k itself if V is a view of K
    float* scores;      // [kPageRows + kTileRows][kPanelLanes]
    float* correction;  // [kPanelLanes]
    std::size_t k_stride;
    std::size_t v_stride;
    bool v_is_k;
};

template <std::size_t kVectors>
HWY_NOINLINE void score_panel(TileState& state, const Panel& panel, std::size_t begin,
                              std::size_t end) {
    for (std::size_t row = begin; row < end; row += kTileRows) {
        state.next_k.fetch(kTileRows);
        multiply_tile<kVectors, false>(state.k + row * state.k_stride, state.k_stride, panel.q,
                                       state.task->shape->key_size, nullptr,
                                       state.scores + row * kVectors * kLanes);
    }
}

template <std::size_t kVectors>
HWY_NOINLINE void add_panel(TileState& state, const Panel& panel, std::size_t begin,
                            std::size_t end) {
    const std::size_t fetch_rows = kPageRows * kTileRows / state.task->shape->value_size + 1;
    const std::size_t stride = state.v_is_k ? state.k_stride : state.v_stride;
    const float* v = state.v + begin * stride;
    for (std::size_t column = 0; column < state.task->shape->value_size; column += kTileRows) {
        state.next_v.fetch(fetch_rows);
        multiply_tile<kVectors, true>(v + column, stride, state.scores + begin * kVectors * kLanes,
                                      end - begin, state.correction,
                                      panel.sums + column * kVectors * kLanes);
    }
}

// Soft-cap, ALiBi and limits on rows [begin, end) of the piece, which starts at row `base` of the
// item.
inline void adjust_panel(const TileState& state, const Panel& panel, std::int32_t base,
                         std::size_t begin, std::size_t end) {
    const D d;
    const DI di;
    const AttentionShape& shape = *state.task->shape;
    const std::size_t stride = panel.vectors * kLanes;
    for (std::size_t lane = 0; lane < stride; lane += kLanes) {
        const auto first = hn::Load(di, panel.begin + lane);
        const auto last = hn::Load(di, panel.end + lane);
        const auto stand = hn::Load(di, panel.stand + lane);
        const V slope = hn::Load(d, panel.slope + lane);
        for (std::size_t row = begin; row < end; ++row) {
            float* at = state.scores + row * stride + lane;
            const auto index = hn::Set(di, base + static_cast<std::int32_t>(row));
            V s = hn::Load(d, at);
            if (shape.softcap > 0.0F) {
                s = soft_cap(s, shape.softcap);
            }
            if (state.task->slopes != nullptr) {
                s = hn::NegMulAdd(slope, hn::Abs(hn::ConvertTo(d, hn::Sub(stand, index))), s);
            }
            const auto hidden = hn::Or(hn::Lt(index, first), hn::Not(hn::Lt(index, last)));
            hn::Store(hn::IfThenElse(hn::RebindMask(d, hidden), hn::Set(d, 2 * kNoScore), s), d,
                      at);
        }
    }
}

// Scores to weights in rows [begin, end).
template <std::size_t kVectors>
HWY_NOINLINE void soften_panel(const TileState& state, const Panel& panel, std::size_t begin,
                               std::size_t end) {
    const D d;
    constexpr std::size_t kStride = kVectors * kLanes;
    for (std::size_t lane = 0; lane < kStride; lane += kLanes) {
        const V old = hn::Load(d, panel.max + lane);
        V top = old;
        float* scores = state.scores + lane;
        for (std::size_t row = begin; row < end; ++row) {
            top = hn::Max(top, hn::Load(d, scores + row * kStride));
        }
        V total = hn::Zero(d);
        for (std::size_t row = begin; row < end; ++row) {
            float* at = scores + row * kStride;
            const V w = exp2_negative(hn::Sub(hn::Load(d, at), top));
            hn::Store(w, d, at);
            total = hn::Add(total, w);
        }
        const V correction = exp2_negative(hn::Sub(old, top));
        hn::Store(correction, d, state.correction + lane);
        hn::Store(top, d, panel.max + lane);
        hn::Store(hn::MulAdd(hn::Load(d, panel.weight + lane), correction, total), d,
                  panel.weight + lane);
    }
}

template <std::size_t kVectors>
void work_panel(TileState& state, const Panel& panel, std::int64_t base, std::size_t count) {
    const auto rows = static_cast<std::int64_t>(count);
    const auto begin =
        static_cast<std::size_t>(std::clamp<std::int64_t>(panel.first_row - base, 0, rows));
    const auto end =
        static_cast<std::size_t>(std::clamp<std::int64_t>(panel.last_row - base, 0, rows));
    if (begin >= end) {
        return;
    }
    score_panel<kVectors>(state, panel, begin, end);
    const bool all_visible = panel.shared_first_row <= base + static_cast<std::int64_t>(begin) &&
                             panel.shared_last_row >= base + static_cast<std::int64_t>(end);
    if (!all_visible || state.task->shape->softcap > 0.0F || state.task->slopes != nullptr) {
        adjust_panel(state, panel, static_cast<std::int32_t>(base), begin, end);
    }
    soften_panel<kVectors>(state, panel, begin, end);
    add_panel<kVectors>(state, panel, begin, end);
}

// Row numbers relative to the item's first, in 32 bits: an item is shorter than that, and what
// lies further away is clamped (ALiBi's distances stay far below).
inline std::int32_t relative_row(std::uint64_t row, std::uint64_t origin) {
    const auto difference = static_cast<std::int64_t>(row) - static_cast<std::int64_t>(origin);
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(difference, -(1 << 30), (1 << 30)));
}

inline void set_limits(const TileState& state, Panel& panel) {
    const ItemTask& task = *state.task;
    const AttentionShape& shape = *task.shape;
    const std::size_t group = shape.heads / shape.kv_heads;
    panel.first_row = panel.shared_last_row = std::int64_t{1} << 40;
    panel.last_row = panel.shared_first_row = -(std::int64_t{1} << 40);
    for (std::size_t i = 0; i < panel.vectors * kLanes; ++i) {
        // Lanes past the end repeat the last one.
        const std::size_t lane = task.unit->lane_begin + panel.lane + std::min(i, panel.lanes - 1);
        const RowRange visible = visible_rows(shape, *task.segment, lane / group);
        const std::size_t head = task.unit->kv_begin * group + lane % group;
        panel.begin[i] = relative_row(visible.begin, task.rows.begin);
        panel.end[i] = relative_row(visible.end, task.rows.begin);
        panel.stand[i] = relative_row(task.segment->position + lane / group, task.rows.begin);
        panel.slope[i] = task.slopes != nullptr ? task.slopes[head] : 0.0F;
        panel.max[i] = kNoScore;
        panel.weight[i] = 0.0F;
        panel.first_row = std::min<std::int64_t>(panel.first_row, panel.begin[i]);
        panel.last_row = std::max<std::int64_t>(panel.last_row, panel.end[i]);
        panel.shared_first_row = std::max<std::int64_t>(panel.shared_first_row, panel.begin[i]);
        panel.shared_last_row = std::min<std::int64_t>(panel.shared_last_row, panel.end[i]);
    }
}

// Q of the panel's lanes, scaled and transposed to [key_size][lanes].
inline void gather_panel_queries(const TileState& state, const Panel& panel) {
    const D d;
    const ItemTask& task = *state.task;
    const AttentionShape& shape = *task.shape;
    const std::size_t group = shape.heads / shape.kv_heads;
    const V factor = hn::Set(d, query_factor(shape));
    const std::size_t size = shape.key_size;
    for (std::size_t block = 0; block < panel.vectors * kLanes; block += kLanes) {
        const float* from[kLanes];
        for (std::size_t i = 0; i < kLanes; ++i) {
            const std::size_t lane =
                task.unit->lane_begin + panel.lane + std::min(block + i, panel.lanes - 1);
            const std::size_t head = task.unit->kv_begin * group + lane % group;
            from[i] = task.q + (task.segment->token_begin + lane / group) * task.q_token_stride +
                      head * size;
        }
        for (std::size_t e = 0; e < size; e += kLanes) {
            V v[kLanes];
            for (std::size_t i = 0; i < kLanes; ++i) {
                v[i] = hn::Mul(size - e >= kLanes ? hn::LoadU(d, from[i] + e)
                                                  : load_f32_tail(from[i] + e, size - e),
                               factor);
            }
            store_transposed(v, panel.q + e * panel.vectors * kLanes + block,
                             panel.vectors * kLanes);
        }
    }
}

// The panel's results to the task's, [lane][sum_stride].
inline void scatter_panel_sums(const TileState& state, const Panel& panel) {
    const D d;
    const ItemTask& task = *state.task;
    const std::size_t stride = panel.vectors * kLanes;
    std::copy(panel.max, panel.max + panel.lanes, task.max + panel.lane);
    std::copy(panel.weight, panel.weight + panel.lanes, task.weight + panel.lane);
    HWY_ALIGN float block[kLanes * kLanes];
    for (std::size_t lane = 0; lane < panel.lanes; lane += kLanes) {
        const std::size_t count = std::min(kLanes, panel.lanes - lane);
        for (std::size_t column = 0; column < task.sum_stride; column += kLanes) {
            V v[kLanes];
            for (std::size_t i = 0; i < kLanes; ++i) {
                v[i] = hn::Load(d, panel.sums + (column + i) * stride + lane);
            }
            float* to = task.sums + (panel.lane + lane) * task.sum_stride + column;
            if (count == kLanes) {
                store_transposed(v, to, task.sum_stride);
                continue;
            }
            store_transposed(v, block, kLanes);
            for (std::size_t i = 0; i < count; ++i) {
                std::copy(block + i * kLanes, block + (i + 1) * kLanes, to + i * task.sum_stride);
            }
        }
    }
}

inline std::size_t tile_scratch_floats(const AttentionShape& shape, std::size_t lanes) {
    const std::size_t k_stride = round_up(shape.key_size, kColumnStep);
    const std::size_t v_stride = round_up(shape.value_size, kColumnStep);
    const std::size_t tile_lanes = round_up(lanes, kLanes);
    return (kPageRows + kTileRows) * (k_stride + v_stride + kPanelLanes) + kPanelLanes +
           tile_lanes * (k_stride + v_stride + 6);
}

// Cuts the panels' buffers from the scratch memory, which starts zeroed. Answers their number.
inline std::size_t make_panels(const TileState& state, float* memory, Panel* panels) {
    const std::size_t lanes = state.task->unit->lane_count;
    std::size_t count = 0;
    for (std::size_t lane = 0; lane < lanes; lane += kPanelLanes) {
        Panel& panel = panels[count++];
        panel.lane = lane;
        panel.lanes = std::min(kPanelLanes, lanes - lane);
        panel.vectors = (panel.lanes + kLanes - 1) / kLanes;
        const std::size_t width = panel.vectors * kLanes;
        panel.q = memory;
        panel.sums = panel.q + state.k_stride * width;
        panel.max = panel.sums + state.v_stride * width;
        panel.weight = panel.max + width;
        panel.slope = panel.weight + width;
        panel.begin = reinterpret_cast<std::int32_t*>(panel.slope + width);
        panel.end = panel.begin + width;
        panel.stand = panel.end + width;
        memory = panel.slope + 4 * width;
        std::fill(panel.sums, panel.max, 0.0F);
        set_limits(state, panel);
        gather_panel_queries(state, panel);
    }
    return count;
}

inline void convert_piece(const TileState& state, const PagePiece& piece) {
    const AttentionShape& shape = *state.task->shape;
    const std::size_t kv = state.task->unit->kv_begin;
    convert_rows(shape.k.type, piece.page + shape.k.offset_bytes + piece.row * shape.k.row_bytes,
                 shape.k.row_bytes, kv * shape.key_size, piece.count, shape.key_size, state.k,
                 state.k_stride);
    if (!state.v_is_k) {
        convert_rows(shape.v.type,
                     piece.page + shape.v.offset_bytes + piece.row * shape.v.row_bytes,
                     shape.v.row_bytes, kv * shape.v_head_stride, piece.count, shape.value_size,
                     state.v, state.v_stride);
    }
}

// Sets what score_panel() and add_panel() ask for while they work on the piece before this one.
inline void announce_piece(TileState& state, const PagePiece& piece) {
    const AttentionShape& shape = *state.task->shape;
    const std::size_t kv = state.task->unit->kv_begin;
    const auto next = [&](const PlaneView& plane, std::size_t size) {
        NextRows rows;
        rows.row_bytes = plane.row_bytes;
        rows.bytes = plane.row_bytes / shape.kv_heads;
        rows.at = piece.page + plane.offset_bytes + piece.row * plane.row_bytes + kv * rows.bytes;
        rows.left = size > 0 ? piece.count : 0;
        return rows;
    };
    state.next_k = next(shape.k, shape.key_size);
    state.next_v = next(shape.v, state.v_is_k ? 0 : shape.value_size);
}

inline constexpr std::size_t kTileLanesLimit = 192;

inline void attend_piece(TileState& state, const PagePiece& piece, std::int64_t base,
                         std::span<const Panel> panels) {
    convert_piece(state, piece);
    for (const Panel& panel : panels) {
        switch (panel.vectors) {
            case 1:
                work_panel<1>(state, panel, base, piece.count);
                break;
            case 2:
                work_panel<2>(state, panel, base, piece.count);
                break;
            default:
                work_panel<3>(state, panel, base, piece.count);
                break;
        }
    }
}

void attend_tile(const ItemTask& task) {
    const AttentionShape& shape = *task.shape;
    TileState state;
    state.task = &task;
    state.k_stride = round_up(shape.key_size, kColumnStep);
    state.v_stride = round_up(shape.value_size, kColumnStep);
    state.v_is_k = shape.v.offset_bytes == shape.k.offset_bytes && shape.kv_heads == 1 &&
                   shape.value_size <= shape.key_size;
    state.k = task.scratch;
    float* v = state.k + (kPageRows + kTileRows) * state.k_stride;
    state.v = state.v_is_k ? state.k : v;
    state.scores = v + (kPageRows + kTileRows) * state.v_stride;
    state.correction = state.scores + (kPageRows + kTileRows) * kPanelLanes;
    PagePiece piece = page_piece(*task.segment, task.rows, task.rows.begin);
    announce_piece(state, piece);
    state.next_k.fetch(kPageRows);
    state.next_v.fetch(kPageRows);
    Panel panels[kTileLanesLimit / kPanelLanes];
    const std::size_t count = make_panels(state, state.correction + kPanelLanes, panels);
    for (std::uint64_t first = task.rows.begin; first < task.rows.end;) {
        const PagePiece current = piece;
        const auto base = static_cast<std::int64_t>(first - task.rows.begin);
        first += current.count;
        if (first < task.rows.end) {
            piece = page_piece(*task.segment, task.rows, first);
            announce_piece(state, piece);
        }
        attend_piece(state, current, base, {panels, count});
    }
    for (std::size_t i = 0; i < count; ++i) {
        scatter_panel_sums(state, panels[i]);
    }
}

}  // namespace stet::exec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
