#include "state/compressed_stream.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/try.h"

namespace stet::state {
namespace {

constexpr int kLevel = 3;
// Of memory that a stream may ask for to be read: 2^27 bytes.
constexpr int kWindowLogMax = 27;

Status damaged(std::size_t code) {
    return Status(Code::corruption,
                  fmt::format("the compressed bytes are damaged: {}", ZSTD_getErrorName(code)));
}

}  // namespace

struct CompressingSink::Impl {
    Sink& sink;
    std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context{ZSTD_createCCtx(), ZSTD_freeCCtx};
    std::vector<std::byte> buffer = std::vector<std::byte>(ZSTD_CStreamOutSize());

    Status run(std::span<const std::byte> data, ZSTD_EndDirective how) {
        if (!context) return Status(Code::resource_exhausted, "no memory to compress with");
        ZSTD_inBuffer in{data.data(), data.size(), 0};
        while (true) {
            ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
            const std::size_t left = ZSTD_compressStream2(context.get(), &out, &in, how);
            if (ZSTD_isError(left) != 0U) {
                return Status(Code::internal,
                              fmt::format("compression failed: {}", ZSTD_getErrorName(left)));
            }
            STET_TRY(sink.write(std::span(buffer).first(out.pos)));
            if (how == ZSTD_e_end ? left == 0 : in.pos == in.size) return {};
        }
    }
};

CompressingSink::CompressingSink(Sink& sink) : impl_(new Impl{sink}) {
    if (impl_->context) {
        ZSTD_CCtx_setParameter(impl_->context.get(), ZSTD_c_compressionLevel, kLevel);
        ZSTD_CCtx_setParameter(impl_->context.get(), ZSTD_c_checksumFlag, 1);
    }
}
CompressingSink::~CompressingSink() = default;

Status CompressingSink::write(std::span<const std::byte> data) {
    return impl_->run(data, ZSTD_e_continue);
}
Status CompressingSink::finish() {
    return impl_->run({}, ZSTD_e_end);
}

struct DecompressingSource::Impl {
    Source& source;
    std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context{ZSTD_createDCtx(), ZSTD_freeDCtx};
    std::vector<std::byte> buffer = std::vector<std::byte>(ZSTD_DStreamInSize());
    ZSTD_inBuffer in{buffer.data(), 0, 0};
    bool is_ended = false;

    Status refill() {
        const std::uint64_t left = source.left().value_or(0);
        if (left == 0) return Status(Code::corruption, "cut short: the compressed bytes end early");
        const std::size_t size = std::min<std::uint64_t>(left, buffer.size());
        STET_TRY(source.read(std::span(buffer).first(size)));
        in = {buffer.data(), size, 0};
        return {};
    }
    // Fills `out` as far as it goes; stops at the end of the stream.
    Status fill(ZSTD_outBuffer& out) {
        if (!context) return Status(Code::resource_exhausted, "no memory to decompress with");
        while (!is_ended && out.pos < out.size) {
            const std::size_t before = out.pos;
            const std::size_t wanted = ZSTD_decompressStream(context.get(), &out, &in);
            if (ZSTD_isError(wanted) != 0U) return damaged(wanted);
            is_ended = wanted == 0;
            if (!is_ended && in.pos == in.size && out.pos == before) STET_TRY(refill());
        }
        return {};
    }
};

DecompressingSource::DecompressingSource(Source& source) : impl_(new Impl{source}) {
    if (impl_->context) {
        ZSTD_DCtx_setParameter(impl_->context.get(), ZSTD_d_windowLogMax, kWindowLogMax);
    }
}
DecompressingSource::~DecompressingSource() = default;

Status DecompressingSource::read(std::span<std::byte> data) {
    ZSTD_outBuffer out{data.data(), data.size(), 0};
    STET_TRY(impl_->fill(out));
    if (out.pos == out.size) return {};
    return Status(Code::corruption,
                  fmt::format("cut short: {} bytes expected, {} are there", out.size, out.pos));
}

Status DecompressingSource::finish() {
    std::byte more{};
    ZSTD_outBuffer out{&more, 1, 0};
    STET_TRY(impl_->fill(out));
    const bool is_all = impl_->is_ended && out.pos == 0 && impl_->in.pos == impl_->in.size &&
                        impl_->source.left() == 0;
    return is_all ? Status() : Status(Code::corruption, "bytes after the end");
}

}  // namespace stet::state
