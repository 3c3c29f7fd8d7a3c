// The interpreter: jinja_interpreter.cpp has the statements and calls, jinja_eval.cpp the
// expressions.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/ops.h"
#include "text/jinja/value.h"

namespace stet::text::jinja {

class Interpreter;

// The variables of a loop's pass, a macro's call or a block. Null stands for the template's own.
struct Scope {
    Scope* parent = nullptr;
    std::vector<std::pair<Symbol, Value>> variables;
    bool captured = false;  // a macro may still look into it
};

struct Macro : Object {
    static constexpr ObjectKind kKind = ObjectKind::macro;
    Macro(const Stmt* s, Scope* o) : Object(kKind), stmt(s), outer(o) {}
    std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;
    const Stmt* const stmt;  // signature and body
    Scope* const outer;
};

// The variable `loop`, which also steps through the items.
struct Loop : Object {
    static constexpr ObjectKind kKind = ObjectKind::loop;
    Loop(Interpreter* i, const Stmt* s, Scope* o, Values v, std::int64_t d)
        : Object(kKind),
          interpreter(i),
          stmt(s),
          outer(o),
          items(std::move(v)),
          depth0(d),
          condition(s->condition) {}
    std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;

    bool step();  // to the next item; false at the end
    const std::optional<Value>& peek();
    std::int64_t length();
    std::optional<Value> fetch();  // the next item that passes the loop's condition

    Interpreter* const interpreter;
    const Stmt* const stmt;
    Scope* const outer;
    Values items;
    std::int64_t depth0;
    const Expr* condition;
    std::size_t next = 0;
    std::int64_t index0 = -1;
    std::optional<Value> before, current, after;
    bool peeked = false;
    std::int64_t known_length = -1;
    std::optional<Values> last_changed;
};

class Interpreter {
  public:
    Interpreter(const Program& program, Runtime& runtime) : program_(program), runtime_(runtime) {}

    std::string run(const Dict& variables);
    Runtime& runtime() { return runtime_; }
    // Whether an item passes the condition of `for ... if`.
    bool passes(const Loop& loop, const Value& item);

  private:
    enum class Flow : std::uint8_t { normal, break_loop, continue_loop };

    // A scope that lives as long as this and is the current one meanwhile.
    class Frame {
      public:
        Frame(Interpreter& interpreter, Scope* parent);
        Frame(const Frame&) = delete;
        Frame& operator=(const Frame&) = delete;
        ~Frame();

      private:
        Interpreter& interpreter_;
        Scope* scope_;
        Scope* outer_;
    };

    // Collects what is written while it lives.
    class Capture {
      public:
        explicit Capture(Interpreter& interpreter);
        Capture(const Capture&) = delete;
        Capture& operator=(const Capture&) = delete;
        ~Capture();
        std::string take();

      private:
        Interpreter& interpreter_;
        std::string text_;
        std::string* outer_;
    };

    Flow exec_block(const Block& block);
    Flow exec(const Stmt& stmt);
    Flow exec_if(const Stmt& stmt);
    Flow exec_scope(const Stmt& stmt);
    Flow exec_with(const Stmt& stmt);
    Flow exec_filter_block(const Stmt& stmt);
    Flow exec_for(const Stmt& stmt);
    bool run_loop(const Stmt& stmt, const Value& iterable, Scope* outer, std::int64_t depth0);
    Flow exec_set_block(const Stmt& stmt);
    void exec_macro(const Stmt& stmt);
    void exec_call_block(const Stmt& stmt);
    void emit(std::string_view text);
    void emit(const Value& value);

    void bind(Symbol symbol, Value value);
    void assign(const Expr& target, const Value& value);
    const Value* look_up(Symbol symbol) const;
    void capture_scopes();
    Value make_macro(const Stmt& stmt);

    Value eval(const Expr& expr);
    Value eval_name(const Expr& expr);
    Value eval_dict(const Expr& expr);
    Value eval_slice(const Expr& expr);
    Value eval_call(const Expr& expr, const Value* caller = nullptr);
    Value eval_filter(const Expr& expr);
    Value eval_test(const Expr& expr);
    Value eval_concat(const Expr& expr);
    Value eval_compare(const Expr& expr);
    Value eval_conditional(const Expr& expr);
    Values eval_all(const std::vector<const Expr*>& exprs);
    void eval_arguments(const Expr& call, Arguments& arguments);
    Value call(const Value& callee, Arguments& arguments);
    Value call_macro(const Macro& macro, Arguments& arguments);
    void bind_parameters(const Macro& macro, Arguments& arguments);
    Value call_loop(const Loop& loop, Arguments& arguments);

    const Program& program_;
    Runtime& runtime_;
    std::deque<Scope> scopes_;
    std::vector<Scope*> free_scopes_;
    Scope* scope_ = nullptr;
    std::vector<std::optional<Value>> globals_;  // the template's own scope, by symbol
    std::string* out_ = nullptr;
    Value block_text_;  // what the filters of a filter or set block start from
    std::uint32_t calls_ = 0;
    std::uint32_t line_ = 1;
};

}  // namespace stet::text::jinja
