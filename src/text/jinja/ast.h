// A parsed template. Nodes are owned flatly by the Program, so that freeing a program never
// recurses; their pointers to each other are plain. Immutable after parsing.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/chat_template.h"
#include "text/jinja/filters.h"
#include "text/jinja/lexer.h"
#include "text/jinja/value.h"

namespace stet::text::jinja {

using Symbol = std::uint32_t;  // number of a variable's name

enum class ExprKind : std::uint8_t {
    constant,    // constant
    name,        // symbol
    list,        // items
    tuple,       // items
    dict,        // items: key, value, key, value, ...
    attribute,   // items[0].constant
    item,        // items[0][items[1]]
    slice,       // items[0][items[1]:items[2]:items[3]]; null where left out
    call,        // items[0](items[1], ..., named, *star, **star_star)
    filter,      // items[0] | name(items[1], ...); items[0] null: the text of the block
    test,        // items[0] is name(items[1], ...)
    not_,        // items[0]
    negative,    // items[0]
    positive,    // items[0]
    arithmetic,  // items[0] op items[1]
    concat,      // items joined as text
    compare,     // items[0] operators[0] items[1] operators[1] items[2] ...
    and_,
    or_,          // items[0], items[1]
    conditional,  // items[0] if items[1] else items[2], which may be null
    member,       // as a target only: symbol.constant of a namespace
};

enum class Comparison : std::uint8_t { eq, ne, lt, le, gt, ge, in, not_in };

struct Expr {
    ExprKind kind;
    std::uint32_t line;
    std::uint32_t height = 1;  // of the tree below, itself included
    TokenKind op = TokenKind::end;
    Symbol symbol = 0;
    Value constant;
    std::string name;  // of a variable, filter or test
    std::vector<const Expr*> items;
    std::vector<Comparison> operators;
    std::vector<std::pair<std::string, const Expr*>> named;
    const Expr* star = nullptr;
    const Expr* star_star = nullptr;
    bool conditional = false;             // in a branch, so it may never be evaluated
    const FilterEntry* filter = nullptr;  // null: unknown, an error when evaluated
    const TestEntry* test = nullptr;
};

struct Stmt;
using Block = std::vector<const Stmt*>;

enum class StmtKind : std::uint8_t {
    data,          // data
    output,        // exprs
    if_,           // branches, otherwise
    for_,          // target, exprs[0], condition, body, otherwise
    set,           // target, exprs[0]
    set_block,     // target, exprs[0] (filters; may be null), body
    macro,         // signature, body
    call_block,    // exprs[0], a call; signature and body of its caller
    filter_block,  // exprs[0], body
    with,          // targets (exprs at even places), values (odd), body
    scope,         // body
    break_,
    continue_,
};

// Of a macro or a call block.
struct Signature {
    Symbol name = 0;
    std::string name_text;
    std::vector<std::pair<Symbol, std::string>> parameters;
    std::vector<const Expr*> defaults;  // of the last parameters
    bool uses_varargs = false;
    bool uses_kwargs = false;
    bool uses_caller = false;
};

struct Stmt {
    StmtKind kind;
    std::uint32_t line;
    Value data;
    std::vector<const Expr*> exprs;
    const Expr* target = nullptr;
    const Expr* condition = nullptr;
    bool recursive = false;
    Block body;
    Block otherwise;
    std::vector<std::pair<const Expr*, Block>> branches;
    Signature signature;
};

// Names that the interpreter itself binds.
struct KnownSymbols {
    Symbol loop, caller, varargs, kwargs;
};

struct Program {
    std::deque<Expr> exprs;
    std::deque<Stmt> stmts;
    Block body;
    std::unordered_map<std::string, Symbol> symbols;
    KnownSymbols known{};
    Dialect dialect = Dialect::reference;
};

}  // namespace stet::text::jinja
