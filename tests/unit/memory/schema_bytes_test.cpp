#include "memory/schema_bytes.h"

#include <gtest/gtest.h>

namespace stet::memory {
namespace {

Result<Schema> reread(const Schema& schema) {
    Writer writer;
    write_schema(writer, schema);
    const auto bytes = writer.take();
    Reader reader(bytes, "manifest");
    return read_schema(reader);
}

Schema named(const std::string& group, const std::string& plane) {
    return {{{group, Lifetime::tokens, 0, {{plane, 0, ElementType::f16, 8, 16}}}}};
}

TEST(SchemaBytes, ComeBack) {
    const Schema schema = named("attention", "k");
    const auto read = reread(schema);
    ASSERT_TRUE(read) << read.status().to_string();
    EXPECT_EQ(read->hash(), schema.hash());
}

// They go into messages, which are one line.
TEST(SchemaBytes, NamesArePlain) {
    const std::string odd[] = {"a\nb", "\x1b[2J", "\xC3\xB6", std::string("\0", 1),
                               std::string(300, 'x')};
    for (const std::string& name : odd) {
        for (const Schema& schema : {named(name, "k"), named("attention", name)}) {
            const Status status = reread(schema).status();
            EXPECT_EQ(status.code(), Code::corruption);
            EXPECT_EQ(status.to_string().find_first_of("\n\x1b"), std::string::npos);
            EXPECT_NE(status.to_string().find("expected printable"), std::string::npos)
                << status.to_string();
        }
    }
}

}  // namespace
}  // namespace stet::memory
