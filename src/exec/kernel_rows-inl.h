// Few lanes (decode): K and V rows are read where they lie, each once for up to four lanes.
#if defined(STET_EXEC_KERNEL_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef STET_EXEC_KERNEL_ROWS_INL_H
#undef STET_EXEC_KERNEL_ROWS_INL_H
#else
#define STET_EXEC_KERNEL_ROWS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace stet::exec::HWY_NAMESPACE {

inline constexpr std::size_t kRowLanesMax = 4;                         // side by side in registers
inline constexpr std::size_t kRowsAtOnce = kLanes < 4 ? 1 : 4;         // of K
inline constexpr std::size_t kColumnsAtOnce = kManyRegisters ? 4 : 2;  // vectors of V
// Rows whose K/V heads are worked on before the next rows: whole vectors of scores.
inline constexpr std::size_t kRowBlock = 16;

// Bytes that are needed after those at hand, asked for a little at a time.
struct Ahead {
    const std::uint8_t* at = nullptr;
    std::size_t step = 0;  // bytes at a time, a multiple of 64

    HWY_INLINE void fetch() {
        for (std::size_t i = 0; i < step; i += 64) {
            prefetch(at + i);
        }
        at += step;
    }
};

// acc[lane][r] += K[row[r]][e ..] * q[lane][e ..] for one vector of elements.
template <std::size_t kHeads>
HWY_INLINE void add_products(const V (&k)[kRowsAtOnce], const float* q, std::size_t q_stride,
                             V (&acc)[kHeads][kRowsAtOnce]) {
    for (std::size_t h = 0; h < kHeads; ++h) {
        const V query = hn::Load(D(), q + h * q_stride);
        for (std::size_t r = 0; r < kRowsAtOnce; ++r) {
            acc[h][r] = hn::MulAdd(k[r], query, acc[h][r]);
        }
    }
}

// scores[lane][row] of `count` rows for kHeads lanes; both strides in floats, scores kPageRows.
// Rows past `count`, up to whole vectors, get the score of the last one. kTail: size has a rest
// after whole vectors.
template <std::size_t kHeads, bool kTail, class Rows>
HWY_NOINLINE void score_rows(const Rows& rows, Ahead& ahead, std::size_t count, std::size_t size,
                             const float* q, std::size_t q_stride, float* scores) {
    const D d;
    const std::size_t whole = size / kLanes * kLanes;
    for (std::size_t first = 0; first < count; first += kLanes) {
        V parts[kHeads][kLanes / kRowsAtOnce];
        for (std::size_t part = 0; part < kLanes / kRowsAtOnce; ++part) {
            ahead.fetch();
            std::size_t row[kRowsAtOnce];
            V acc[kHeads][kRowsAtOnce];
            for (std::size_t r = 0; r < kRowsAtOnce; ++r) {
                row[r] = std::min(first + part * kRowsAtOnce + r, count - 1);
                for (std::size_t h = 0; h < kHeads; ++h) {
                    acc[h][r] = hn::Zero(d);
                }
            }
            V k[kRowsAtOnce];
            for (std::size_t e = 0; e < whole; e += kLanes) {
                for (std::size_t r = 0; r < kRowsAtOnce; ++r) {
                    k[r] = rows.load(row[r], e);
                }
                add_products<kHeads>(k, q + e, q_stride, acc);
            }
            if constexpr (kTail) {
                for (std::size_t r = 0; r < kRowsAtOnce; ++r) {
                    k[r] = rows.load_tail(row[r], whole, size - whole);
                }
                add_products<kHeads>(k, q + whole, q_stride, acc);
            }
            for (std::size_t h = 0; h < kHeads; ++h) {
                parts[h][part] = add_lanes<kRowsAtOnce>(acc[h]);
            }
        }
        for (std::size_t h = 0; h < kHeads; ++h) {
            hn::Store(add_lanes<kLanes / kRowsAtOnce>(parts[h]), d, scores + h * kPageRows + first);
        }
    }
}

// sums[lane] = sums[lane] * correction[lane] + sum over rows of weights[lane][row] * V[row].
template <std::size_t kHeads, std::size_t kColumns, bool kTail, class Rows>
HWY_INLINE void add_columns(const Rows& rows, Ahead& ahead, std::size_t count, std::size_t column,
                            std::size_t tail, const float* weights, const float* correction,
                            float* sums, std::size_t sum_stride) {
    const D d;
    ahead.fetch();
    V acc[kHeads][kColumns];
    for (std::size_t h = 0; h < kHeads; ++h) {
        for (std::size_t c = 0; c < kColumns; ++c) {
            acc[h][c] = hn::Mul(hn::Load(d, sums + h * sum_stride + column + c * kLanes),
                                hn::Set(d, correction[h]));
        }
    }
    for (std::size_t row = 0; row < count; ++row) {
        V v[kColumns];
        for (std::size_t c = 0; c < kColumns; ++c) {
            if constexpr (kTail) {
                v[c] = rows.load_tail(row, column, tail);
            } else {
                v[c] = rows.load(row, column + c * kLanes);
            }
        }
        for (std::size_t h = 0; h < kHeads; ++h) {
            const V weight = hn::Set(d, weights[h * kPageRows + row]);
            for (std::size_t c = 0; c < kColumns; ++c) {
                acc[h][c] = hn::MulAdd(weight, v[c], acc[h][c]);
            }
        }
    }
    for (std::size_t h = 0; h < kHeads; ++h) {
        for (std::size_t c = 0; c < kColumns; ++c) {
            hn::Store(acc[h][c], d, sums + h * sum_stride + column + c * kLanes);
        }
    }
}

template <std::size_t kHeads, class Rows>
HWY_NOINLINE void add_rows(const Rows& rows, Ahead& ahead, std::size_t count, std::size_t size,
                           const float* weights, const float* correction, float* sums,
                           std::size_t sum_stride) {
    const std::size_t whole = size / kLanes * kLanes;
    std::size_t column = 0;
    for (; column + kColumnsAtOnce * kLanes <= whole; column += kColumnsAtOnce * kLanes) {
        add_columns<kHeads, kColumnsAtOnce, false>(rows, ahead, count, column, 0, weights,
                                                   correction, sums, sum_stride);
    }
    for (; column < whole; column += kLanes) {
        add_columns<kHeads, 1, false>(rows, ahead, count, column, 0, weights, correction, sums,
                                      sum_stride);
    }
    if (whole < size) {
        add_columns<kHeads, 1, true>(rows, ahead, count, whole, size - whole, weights, correction,
                                     sums, sum_stride);
    }
}

// What the row-by-row kernel keeps while it works on an item. Lanes of all K/V heads follow each
// other: lane l of K/V head kv is number kv * lanes + l.
struct RowState {
    const ItemTask* task;
    float* q;           // [number][q_stride]
    float* scores;      // [number][kPageRows], then the weights
    float* correction;  // [number]
    float* ones;        // [lanes]
    float* converted;   // q8_0 with heads off the vectors: rows of one head as f32
    std::size_t q_stride;

    std::size_t lanes() const { return task->unit->lane_count; }
};

// One K/V head in a block of rows of a page. Rows are relative to the block.
struct HeadBlock {
    std::size_t number;  // of its first lane
    std::size_t first;   // row of the block in the piece
    std::size_t count;   // rows
};

template <std::size_t kHeads, class Rows>
HWY_INLINE void score_some(const RowState& state, const Rows& rows, Ahead& ahead, std::size_t count,
                           std::size_t number, float* scores) {
    const std::size_t size = state.task->shape->key_size;
    const float* q = state.q + number * state.q_stride;
    if (size % kLanes == 0) {
        score_rows<kHeads, false>(rows, ahead, count, size, q, state.q_stride, scores);
    } else {
        score_rows<kHeads, true>(rows, ahead, count, size, q, state.q_stride, scores);
    }
}

template <class Rows>
void score_block(const RowState& state, const Rows& rows, Ahead& ahead, const HeadBlock& block) {
    for (std::size_t lane = 0; lane < state.lanes();) {
        const std::size_t number = block.number + lane;
        float* scores = state.scores + number * kPageRows + block.first;
        const std::size_t step = std::min(state.lanes() - lane, kRowLanesMax);
        switch (step) {
            case 1:
                score_some<1>(state, rows, ahead, block.count, number, scores);
                break;
            case 2:
                score_some<2>(state, rows, ahead, block.count, number, scores);
                break;
            case 3:
                score_some<3>(state, rows, ahead, block.count, number, scores);
                break;
            default:
                score_some<4>(state, rows, ahead, block.count, number, scores);
                break;
        }
        lane += step;
    }
}

template <class Rows>
void add_block(const RowState& state, const Rows& rows, Ahead& ahead, const HeadBlock& block) {
    const std::size_t size = state.task->shape->value_size;
    const std::size_t stride = state.task->sum_stride;
    for (std::size_t lane = 0; lane < state.lanes();) {
        const std::size_t number = block.number + lane;
        const float* weights = state.scores + number * kPageRows + block.first;
        const float* factor = block.first == 0 ? state.correction + number : state.ones;
        float* sums = state.task->sums + number * stride;
        const std::size_t step = std::min(state.lanes() - lane, kRowLanesMax);
        switch (step) {
            case 1:
                add_rows<1>(rows, ahead, block.count, size, weights, factor, sums, stride);
                break;
            case 2:
                add_rows<2>(rows, ahead, block.count, size, weights, factor, sums, stride);
                break;
            case 3:
                add_rows<3>(rows, ahead, block.count, size, weights, factor, sums, stride);
                break;
            default:
                add_rows<4>(rows, ahead, block.count, size, weights, factor, sums, stride);
                break;
        }
        lane += step;
    }
}

// Soft-cap, ALiBi and limits on the scores of one lane. `visible` and `distance` are relative to
// the first row of the piece: rows [begin, end) are visible, the query stands at row `distance`.
inline void adjust_lane(const AttentionShape& shape, float slope, std::int64_t distance,
                        std::int64_t begin, std::int64_t end, std::size_t count, float* scores) {
    const D d;
    const DI di;
    const auto first =
        hn::Set(di, static_cast<std::int32_t>(std::clamp<std::int64_t>(begin, 0, kPageRows)));
    const auto last =
        hn::Set(di, static_cast<std::int32_t>(std::clamp<std::int64_t>(end, 0, kPageRows)));
    for (std::size_t row = 0; row < count; row += kLanes) {
        const auto index = hn::Iota(di, static_cast<std::int32_t>(row));
        V s = hn::Load(d, scores + row);
        if (shape.softcap > 0.0F) {
            s = soft_cap(s, shape.softcap);
        }
        if (slope != 0.0F) {
            const auto steps = hn::Sub(hn::Set(di, static_cast<std::int32_t>(distance)), index);
            s = hn::NegMulAdd(hn::Set(d, slope), hn::Abs(hn::ConvertTo(d, steps)), s);
        }
        const auto hidden = hn::Or(hn::Lt(index, first), hn::Not(hn::Lt(index, last)));
        hn::Store(hn::IfThenElse(hn::RebindMask(d, hidden), hn::Set(d, 2 * kNoScore), s), d,
                  scores + row);
    }
}

// Scores to weights; updates the largest score and the weight of the lane.
inline void soften_lane(std::size_t count, float* scores, float* max, float* weight,
                        float* correction) {
    const D d;
    V top = hn::Set(d, *max);
    for (std::size_t row = 0; row < count; row += kLanes) {
        top = hn::Max(top, hn::Load(d, scores + row));
    }
    top = hn::MaxOfLanes(d, top);
    V total = hn::Zero(d);
    for (std::size_t row = 0; row < count; row += kLanes) {
        const V w = exp2_negative(hn::Sub(hn::Load(d, scores + row), top));
        hn::Store(w, d, scores + row);
        total = hn::Add(total, w);
    }
    *correction = hn::GetLane(exp2_negative(hn::Sub(hn::Set(d, *max), top)));
    *max = hn::GetLane(top);
    *weight = *weight * *correction + hn::GetLane(hn::SumOfLanes(d, total));
}

inline void soften_lanes(const RowState& state, std::uint64_t first, std::size_t count,
                         std::size_t kv) {
    const ItemTask& task = *state.task;
    const AttentionShape& shape = *task.shape;
    const std::size_t group = shape.heads / shape.kv_heads;
    for (std::size_t lane = 0; lane < state.lanes(); ++lane) {
        const std::size_t token = (task.unit->lane_begin + lane) / group;
        const std::size_t head = kv * group + (task.unit->lane_begin + lane) % group;
        const RowRange visible = visible_rows(shape, *task.segment, token);
        const auto base = static_cast<std::int64_t>(first);
        const auto begin = static_cast<std::int64_t>(visible.begin) - base;
        const auto end = std::min(static_cast<std::int64_t>(visible.end) - base,
                                  static_cast<std::int64_t>(count));
        const float slope = task.slopes != nullptr ? task.slopes[head] : 0.0F;
        const auto distance = static_cast<std::int64_t>(task.segment->position + token) - base;
        const std::size_t number = (kv - task.unit->kv_begin) * state.lanes() + lane;
        float* scores = state.scores + number * kPageRows;
        const bool whole = begin <= 0 && end >= static_cast<std::int64_t>(round_up(count, kLanes));
        if (!whole || shape.softcap > 0.0F || slope != 0.0F) {
            adjust_lane(shape, slope, distance, begin, end, count, scores);
        }
        soften_lane(count, scores, task.max + number, task.weight + number,
                    state.correction + number);
    }
}

// q of the item's lanes, scaled, padded with zeros to whole vectors.
inline void gather_queries(const RowState& state) {
    const ItemTask& task = *state.task;
    const AttentionShape& shape = *task.shape;
    const std::size_t group = shape.heads / shape.kv_heads;
    const float factor = query_factor(shape);
    float* to = state.q;
    for (std::size_t kv = 0; kv < task.unit->kv_count; ++kv) {
        for (std::size_t lane = 0; lane < state.lanes(); ++lane, to += state.q_stride) {
            const std::size_t index = task.unit->lane_begin + lane;
            const std::size_t head = (task.unit->kv_begin + kv) * group + index % group;
            const float* from = task.q +
                                (task.segment->token_begin + index / group) * task.q_token_stride +
                                head * shape.key_size;
            for (std::size_t e = 0; e < shape.key_size; ++e) {
                to[e] = from[e] * factor;
            }
            std::fill(to + shape.key_size, to + state.q_stride, 0.0F);
        }
    }
}

// A plane of a piece: where its rows of the first K/V head start.
struct PlaneRows {
    const PlaneView* plane;
    const std::uint8_t* base;  // row 0 of the piece
    std::size_t size;          // elements of a head
    std::size_t head_stride;   // elements between heads
    std::size_t count;         // rows

    HWY_INLINE const std::uint8_t* row(std::size_t index) const {
        return base + index * plane->row_bytes;
    }
};

HWY_INLINE PlaneRows key_rows(const AttentionShape& shape, const PagePiece& piece) {
    return {&shape.k, piece.page + shape.k.offset_bytes + piece.row * shape.k.row_bytes,
            shape.key_size, shape.key_size, piece.count};
}

HWY_INLINE PlaneRows value_rows(const AttentionShape& shape, const PagePiece& piece) {
    return {&shape.v, piece.page + shape.v.offset_bytes + piece.row * shape.v.row_bytes,
            shape.value_size, shape.v_head_stride, piece.count};
}

// What to fetch during `fetches` calls of Ahead::fetch(): the block of rows from `first` on.
HWY_INLINE Ahead block_ahead(const PlaneRows& rows, std::size_t first, std::size_t fetches) {
    const std::size_t bytes = std::min(kRowBlock, rows.count - first) * rows.plane->row_bytes;
    Ahead ahead;
    ahead.at = rows.row(first);
    ahead.step = round_up(bytes / fetches + 1, 64);
    return ahead;
}

// score_block() or add_block() with the reader for the plane's type.
template <bool kScore>
HWY_INLINE void work_block(const RowState& state, const PlaneRows& plane, Ahead& ahead,
                           std::size_t head, const HeadBlock& block) {
    const std::uint8_t* base = plane.row(block.first);
    const std::size_t row_bytes = plane.plane->row_bytes;
    const std::size_t offset = head * plane.head_stride;
    const auto work = [&](const auto& rows) HWY_ATTR {
        if constexpr (kScore) {
            score_block(state, rows, ahead, block);
        } else {
            add_block(state, rows, ahead, block);
        }
    };
    if (plane.plane->type == ElementType::f16) {
        work(RowsF16{base + 2 * offset, row_bytes});
    } else if (plane.plane->type == ElementType::f32) {
        work(RowsF32{base + 4 * offset, row_bytes});
    } else if (offset % kLanes == 0) {
        work(RowsQ8{base, row_bytes, offset});
    } else {
        const std::size_t stride = round_up(plane.size, kLanes);
        convert_rows(plane.plane->type, base, row_bytes, offset, block.count, plane.size,
                     state.converted, stride);
        work(RowsF32{reinterpret_cast<const std::uint8_t*>(state.converted),
                     stride * sizeof(float)});
    }
}

// All heads of a plane, block by block: rows are read in the order in which they lie. `next` is
// the plane that comes after, null at the end.
template <bool kScore>
HWY_INLINE void work_plane(const RowState& state, const PlaneRows& plane, const PlaneRows* next) {
    const WorkUnit& unit = *state.task->unit;
    // The work on a block calls score_rows() or add_rows() this often, and these fetch so often.
    const std::size_t calls = unit.kv_count * ((state.lanes() + kRowLanesMax - 1) / kRowLanesMax);
    const std::size_t fetches =
        calls * (kScore ? kRowBlock / kRowsAtOnce
                        : std::max<std::size_t>(1, plane.size / (kColumnsAtOnce * kLanes)));
    for (std::size_t first = 0; first < plane.count; first += kRowBlock) {
        const bool last = first + kRowBlock >= plane.count;
        const std::size_t count = std::min(kRowBlock, plane.count - first);
        Ahead ahead;
        if (!last) {
            ahead = block_ahead(plane, first + kRowBlock, fetches);
        } else if (next != nullptr) {
            ahead = block_ahead(*next, 0, fetches);
        }
        for (std::size_t kv = 0; kv < unit.kv_count; ++kv) {
            const HeadBlock block{kv * state.lanes(), first, count};
            work_block<kScore>(state, plane, ahead, unit.kv_begin + kv, block);
        }
    }
}

inline std::size_t rows_scratch_floats(const AttentionShape& shape, std::size_t sums) {
    const std::size_t size = round_up(std::max(shape.key_size, shape.value_size), kLanes);
    return sums * (round_up(shape.key_size, kLanes) + kPageRows + 1) + kRowLanesMax +
           kRowBlock * size;
}

void attend_rows(const ItemTask& task) {
    const AttentionShape& shape = *task.shape;
    const std::size_t sums = task.unit->sums();
    RowState state;
    state.task = &task;
    state.q_stride = round_up(shape.key_size, kLanes);
    state.q = task.scratch;
    state.scores = state.q + sums * state.q_stride;
    state.converted = state.scores + sums * kPageRows;
    state.correction =
        state.converted + kRowBlock * round_up(std::max(shape.key_size, shape.value_size), kLanes);
    state.ones = state.correction + sums;
    std::fill(state.ones, state.ones + kRowLanesMax, 1.0F);
    PagePiece piece = page_piece(*task.segment, task.rows, task.rows.begin);
    block_ahead(key_rows(shape, piece), 0, 1).fetch();
    gather_queries(state);
    std::fill(task.max, task.max + sums, kNoScore);
    std::fill(task.weight, task.weight + sums, 0.0F);
    std::fill(task.sums, task.sums + sums * task.sum_stride, 0.0F);
    for (std::uint64_t first = task.rows.begin; first < task.rows.end;) {
        const PlaneRows keys = key_rows(shape, piece);
        const PlaneRows values = value_rows(shape, piece);
        work_plane<true>(state, keys, &values);
        for (std::size_t kv = 0; kv < task.unit->kv_count; ++kv) {
            soften_lanes(state, first, piece.count, task.unit->kv_begin + kv);
        }
        first += piece.count;
        if (first < task.rows.end) {
            piece = page_piece(*task.segment, task.rows, first);
            const PlaneRows next = key_rows(shape, piece);
            work_plane<false>(state, values, &next);
        } else {
            work_plane<false>(state, values, nullptr);
        }
    }
}

}  // namespace stet::exec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
