#include "model/tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <optional>
#include <span>
#include <thread>

#include "base/try.h"

namespace stet::model {
namespace {

std::string shape_text(std::span<const std::uint64_t> shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Whole pages inside a tensor's data: the kernel may drop them, they come back from the file.
void let_go(std::span<const std::byte> data) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = (reinterpret_cast<std::uintptr_t>(data.data()) + page - 1) / page * page;
    const auto end = reinterpret_cast<std::uintptr_t>(data.data() + data.size()) / page * page;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

// Brings the weights that stay in the mapped file into memory now, with the load, and not one fault
// at a time during the first prompt. Only a hint: older kernels don't know it.
void fetch(std::span<const std::byte> data) {
#ifdef MADV_POPULATE_READ
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(data.data()) / page * page;
    const auto end = reinterpret_cast<std::uintptr_t>(data.data() + data.size());
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ);
#else
    static_cast<void>(data);
#endif
}

std::optional<exec::PackedFormat> packed_format(gguf::TensorType type) {
    switch (type) {
        case gguf::TensorType::q4_0:
            return exec::PackedFormat::q4_0;
        case gguf::TensorType::q4_1:
            return exec::PackedFormat::q4_1;
        case gguf::TensorType::q5_0:
            return exec::PackedFormat::q5_0;
        case gguf::TensorType::q5_1:
            return exec::PackedFormat::q5_1;
        case gguf::TensorType::q8_0:
            return exec::PackedFormat::q8_0;
        case gguf::TensorType::iq4_nl:
            return exec::PackedFormat::iq4_nl;
        case gguf::TensorType::q4_k:
            return exec::PackedFormat::q4_k;
        case gguf::TensorType::q5_k:
            return exec::PackedFormat::q5_k;
        case gguf::TensorType::q6_k:
            return exec::PackedFormat::q6_k;
        case gguf::TensorType::iq4_xs:
            return exec::PackedFormat::iq4_xs;
        default:
            return std::nullopt;
    }
}

}  // namespace

Result<std::unique_ptr<Tensors>> Tensors::open(const gguf::File& file, const exec::Backend& backend,
                                               std::uint32_t width) {
    std::unique_ptr<Tensors> tensors(new Tensors(file, backend, width));
    STET_TRY(tensors->map_files());
    return tensors;
}

Status Tensors::map_files() {
    storage_ = std::make_shared<TensorStorage>();
    for (std::uint32_t i = 0; i < file_.file_count(); ++i) {
        const auto bytes = file_.mapped(i);
        // The mapping is read-only and so is every use of weights; ggml's interface isn't const.
        ggml_backend_buffer_t buffer =
            ggml_backend_cpu_buffer_from_ptr(const_cast<std::byte*>(bytes.data()), bytes.size());
        if (buffer == nullptr)
            return Status(Code::resource_exhausted, "no memory for a weight buffer");
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        file_buffers_.push_back(buffer);
        storage_->buffers.emplace_back(buffer);
    }
    // A tensor may be asked for twice: a tied head is a second tensor over the embedding's data.
    const std::size_t tensors = 2 * file_.tensors().size();
    storage_->context.reset(ggml_init({tensors * ggml_tensor_overhead(), nullptr, true}));
    if (!storage_->context)
        return Status(Code::resource_exhausted, "no memory for the tensor table");
    return {};
}

Result<ggml_tensor*> Tensors::find(const std::string& name, Shape shape, Need need, Use use) {
    const gguf::Tensor* found = file_.find_tensor(name);
    if (found == nullptr) {
        if (need == Need::optional) return nullptr;
        return Status(Code::corruption,
                      fmt::format("{}: tensor {} {} is missing", file_.path().string(), name,
                                  shape_text(std::span(shape.begin(), shape.size()))));
    }
    std::array<std::uint64_t, 4> wanted = {1, 1, 1, 1};
    std::copy(shape.begin(), shape.end(), wanted.begin());
    if (found->shape != wanted) {
        return Status(
            Code::corruption,
            fmt::format("{}: tensor {} has shape {}, expected {}", file_.path().string(), name,
                        shape_text(std::span(found->shape).first(found->dimensions)),
                        shape_text(std::span(shape.begin(), shape.size()))));
    }
    const auto type = static_cast<ggml_type>(found->type);
    STET_TRY(check_type(*found, use, shape.size()));
    const std::array<std::int64_t, 4> ne = {
        static_cast<std::int64_t>(wanted[0]), static_cast<std::int64_t>(wanted[1]),
        static_cast<std::int64_t>(wanted[2]), static_cast<std::int64_t>(wanted[3])};
    ggml_tensor* tensor =
        ggml_new_tensor(storage_->context.get(), type, static_cast<int>(shape.size()), ne.data());
    if (tensor == nullptr)
        return Status(Code::internal, "more tensors were asked for than planned");
    ggml_set_name(tensor, name.c_str());
    used_.insert(name);
    STET_TRY(place(tensor, *found, use));
    return tensor;
}

Status Tensors::check_type(const gguf::Tensor& tensor, Use use, std::size_t dimensions) const {
    const auto type = static_cast<ggml_type>(tensor.type);
    const bool is_known = static_cast<int>(type) < GGML_TYPE_COUNT && ggml_type_size(type) != 0;
    const bool is_vector = dimensions == 1 && use == Use::other;
    if (is_known && (use == Use::values || is_vector) && type != GGML_TYPE_F32) {
        return Status(Code::unimplemented,
                      fmt::format("{}: tensor {} is {}, expected f32", file_.path().string(),
                                  tensor.name, ggml_type_name(type)));
    }
    if (use == Use::indices) {
        if (type == GGML_TYPE_I32) return {};
        return Status(Code::unimplemented,
                      fmt::format("{}: tensor {} is {}, expected i32", file_.path().string(),
                                  tensor.name, is_known ? ggml_type_name(type) : "unknown"));
    }
    // Integers and the types of activations only are no weights.
    if (is_known && (type == GGML_TYPE_F32 || ggml_get_type_traits(type)->to_float != nullptr)) {
        return {};
    }
    return Status(
        Code::unimplemented,
        fmt::format("{}: tensor {}: type {} is not supported", file_.path().string(), tensor.name,
                    is_known ? ggml_type_name(type)
                             : std::to_string(static_cast<std::uint32_t>(tensor.type))));
}

Status Tensors::place(ggml_tensor* tensor, const gguf::Tensor& source, Use use) {
    if (use == Use::product || use == Use::expert_product) {
        for (ggml_backend_buffer_type_t buffer_type : backend_.weight_buffer_types()) {
            const bool is_supported = use == Use::product
                                          ? backend_.supports_product(tensor, buffer_type)
                                          : backend_.supports_expert_product(tensor, buffer_type);
            if (is_supported) {
                repacks_.push_back({tensor, &source, buffer_type});
                return {};
            }
        }
    }
    auto* data = const_cast<std::byte*>(file_.data(source).data());
    if (ggml_backend_tensor_alloc(file_buffers_[source.file_index], tensor, data) !=
        GGML_STATUS_SUCCESS) {
        return Status(Code::internal, fmt::format("tensor {} could not be placed", source.name));
    }
    if (use != Use::lookup) fetch(file_.data(source));
    return {};
}

Result<const exec::PackedMatrix*> Tensors::pack(const std::string& name, std::uint64_t in,
                                                std::uint64_t out) {
    const gguf::Tensor* source = file_.find_tensor(name);
    if (source == nullptr || source->shape != std::array<std::uint64_t, 4>{in, out, 1, 1})
        return nullptr;
    const auto format = packed_format(source->type);
    if (!format || !exec::PackedMatrix::is_packable(*format, out, in)) return nullptr;
    STET_ASSIGN(auto packed, exec::PackedMatrix::create(*format, out, in));
    storage_->repacked_bytes += packed.size_bytes();
    storage_->packed.push_back(std::move(packed));
    packs_.push_back({&storage_->packed.back(), file_.data(*source)});
    return &storage_->packed.back();
}

// Each thread takes the next matrix.
void Tensors::fill_packed() {
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
        for (std::size_t i = next++; i < packs_.size(); i = next++) {
            fetch(packs_[i].source);
            packs_[i].matrix->fill(packs_[i].source, 0, packs_[i].matrix->groups());
            let_go(packs_[i].source);
        }
    };
    std::vector<std::jthread> others;
    for (int thread = 1; thread < backend_.threads(); ++thread) others.emplace_back(work);
    work();
    others.clear();
    packs_.clear();
}

Result<Linear> Tensors::linear(const std::string& name, std::uint64_t in, std::uint64_t out,
                               Need need) {
    Linear linear;
    STET_ASSIGN(linear.scale, find(name + ".scale", {1}, Need::optional));
    if (linear.scale == nullptr) {  // packed products know none
        STET_ASSIGN(linear.packed, pack(name + ".weight", in, out));
    }
    STET_ASSIGN(linear.weight, find(name + ".weight", {in, out}, need,
                                    linear.packed != nullptr ? Use::lookup : Use::product));
    if (linear.weight == nullptr) return linear;
    STET_ASSIGN(linear.bias, find(name + ".bias", {out}, Need::optional));
    return linear;
}

Result<Linear> Tensors::head(const std::string& name, std::uint64_t in, std::uint64_t out,
                             Need need) {
    const gguf::Tensor* source = file_.find_tensor(name + ".weight");
    if (source == nullptr || source->type != gguf::TensorType::q8_0 || has(name + ".bias")) {
        return linear(name, in, out, need);
    }
    Linear linear;
    STET_ASSIGN(linear.weight, find(name + ".weight", {in, out}, need));
    linear.is_q8_rows = true;
    return linear;
}

Result<Norm> Tensors::norm(const std::string& name, std::uint64_t size, Need need) {
    Norm norm;
    const bool is_bare = !has(name + ".weight") && has(name);
    STET_ASSIGN(norm.weight, find(is_bare ? name : name + ".weight", {size}, need));
    if (norm.weight == nullptr) return norm;
    STET_ASSIGN(norm.bias, find(name + ".bias", {size}, Need::optional));
    return norm;
}

Result<Experts> Tensors::experts(const std::string& name, std::uint64_t in, std::uint64_t out,
                                 std::uint64_t count, Need need) {
    Experts experts;
    STET_ASSIGN(experts.weight,
                find(name + ".weight", {in, out, count}, need, Use::expert_product));
    if (experts.weight == nullptr) return experts;
    STET_ASSIGN(experts.bias, find(name + ".bias", {out, count}, Need::optional, Use::values));
    STET_ASSIGN(experts.scale, find(name + ".scale", {count}, Need::optional));
    return experts;
}

// Gives each repacked tensor room in a buffer of its kind and converts it there.
Status Tensors::repack() {
    for (const Repack& item : repacks_) {
        const std::size_t size = ggml_backend_buft_get_alloc_size(item.type, item.tensor);
        ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(item.type, size);
        if (buffer == nullptr) {
            return Status(Code::resource_exhausted,
                          fmt::format("no memory to repack tensor {} ({} bytes)",
                                      ggml_get_name(item.tensor), size));
        }
        storage_->buffers.emplace_back(buffer);
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        if (ggml_backend_tensor_alloc(buffer, item.tensor, ggml_backend_buffer_get_base(buffer)) !=
            GGML_STATUS_SUCCESS) {
            return Status(Code::internal,
                          fmt::format("tensor {} could not be placed", ggml_get_name(item.tensor)));
        }
        const auto data = file_.data(*item.source);
        ggml_backend_tensor_set(item.tensor, data.data(), 0, data.size());
        storage_->repacked_bytes += size;
        let_go(data);
    }
    repacks_.clear();
    fill_packed();
    return {};
}

std::vector<std::string> Tensors::unused() const {
    std::vector<std::string> names;
    for (const gguf::Tensor& tensor : file_.tensors()) {
        if (!used_.contains(tensor.name)) names.push_back(tensor.name);
    }
    return names;
}

}  // namespace stet::model
