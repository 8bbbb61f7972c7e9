//! What is refused, and how it is told.

use super::{check, env};
use crate::{Env, Type};

#[test]
fn errors_are_printed_with_the_line_and_a_caret() {
    let text = |source: &str| env().compile(source).unwrap_err().to_string();
    assert_eq!(
        text("self.replicas > y"),
        "ERROR: <input>:1:17: undeclared reference to 'y' (in container '')\n | self.replicas > y\n | ................^"
    );
    assert_eq!(text("self.nope"), "ERROR: <input>:1:5: undefined field 'nope'\n | self.nope\n | ....^");
    assert_eq!(
        text("true &&\n  1 == 'a'"),
        "ERROR: <input>:2:5: found no matching overload for '_==_' applied to '(int, string)'\n |   1 == 'a'\n | ....^"
    );
    assert_eq!(
        text("a + b"),
        "ERROR: <input>:1:1: undeclared reference to 'a' (in container '')\n | a + b\n | ^\n\
         ERROR: <input>:1:5: undeclared reference to 'b' (in container '')\n | a + b\n | ....^"
    );
    assert_eq!(
        text("'é' == y"),
        "ERROR: <input>:1:8: undeclared reference to 'y' (in container '')\n | 'é' == y\n | .．.....^"
    );
}

#[test]
fn types_are_checked_before_evaluation() {
    check(
        r#"
        y ⇒ compile: undeclared reference to 'y' (in container '')
        nope(1) ⇒ compile: undeclared reference to 'nope' (in container '')
        self.nope(1) ⇒ compile: undeclared reference to 'nope' (in container '')
        1 + 'a' ⇒ compile: found no matching overload for '_+_' applied to '(int, string)'
        1 + 1u ⇒ compile: found no matching overload for '_+_' applied to '(int, uint)'
        1 == 1.0 ⇒ compile: found no matching overload for '_==_' applied to '(int, double)'
        1 && true ⇒ compile: expected type 'bool' but found 'int'
        !1 ⇒ compile: found no matching overload for '!_' applied to '(int)'
        'a'.contains(1) ⇒ compile: found no matching overload for 'contains' applied to 'string.(int)'
        size(1) ⇒ compile: found no matching overload for 'size' applied to '(int)'
        true ? 1 : 'a' ⇒ compile: found no matching overload for '_?_:_' applied to '(bool, int, string)'
        [1, 'a'] ⇒ compile: expected type 'int' but found 'string'
        {'a': 1, 'b': 'c'} ⇒ compile: expected type 'int' but found 'string'
        {[1]: 1} ⇒ compile: unsupported key type: list(int)
        self.name == null ⇒ compile: found no matching overload for '_==_' applied to '(string, null)'
        self.items == null ⇒ compile: found no matching overload for '_==_' applied to '(list(Item), null)'
        self.items[0] == null ⇒ false
        self.when == null ⇒ false
        self.names[0] == 1 ⇒ compile: found no matching overload for '_==_' applied to '(string, int)'
        self.labels[1] ⇒ compile: found no matching overload for '_[_]' applied to '(map(string, string), int)'
        1 in 'a' ⇒ compile: found no matching overload for '@in' applied to '(int, string)'
        1 in ['a'] ⇒ compile: found no matching overload for '@in' applied to '(int, list(string))'
        [[1], []] ⇒ [[1], []]
        [] + [1] ⇒ [1]
        [].map(i, i) + ['a'] ⇒ ["a"]
        'a'.matches('(') ⇒ compile: invalid matches argument
        duration('x') ⇒ compile: invalid duration argument
        timestamp('x') ⇒ compile: invalid timestamp argument
        for ⇒ compile: reserved identifier: for
        Foo{a: 1} ⇒ compile: undeclared reference to 'Foo' (in container '')
        `a` ⇒ compile: Syntax error: token recognition error at: '`'
        'a ⇒ compile: Syntax error: string literal is not closed
        '\q' ⇒ compile: Syntax error: invalid escape sequence in string literal
        1 + ⇒ compile: Syntax error: mismatched input '<EOF>' expecting an expression
        (1 ⇒ compile: Syntax error: mismatched input '<EOF>' expecting ')'
        1 2 ⇒ compile: Syntax error: extraneous input '2' expecting <EOF>
        self. ⇒ compile: Syntax error: mismatched input '<EOF>' expecting IDENTIFIER
        "#,
    );
}

#[test]
fn the_type_of_the_result_is_known() {
    for (source, expected) in [
        ("1", "int"),
        ("self.replicas > 1", "bool"),
        ("self.items", "list(Item)"),
        ("self.items.map(i, i.name)", "list(string)"),
        ("self.items.filter(i, i.weight > 1)[0]", "Item"),
        ("self.labels", "map(string, string)"),
        ("self.?name", "optional_type(string)"),
        ("oldSelf.name", "optional_type(string)"),
        ("oldSelf.?name.orValue('x')", "string"),
        ("self.labels[?'a']", "optional_type(string)"),
        ("[]", "list(dyn)"),
        ("self.any.x", "dyn"),
        ("true ? self.replicas : 1", "int"),
        ("dyn(1)", "dyn"),
        ("dyn(1) + dyn(2)", "dyn"),
        ("type(1)", "type"),
        ("quantity('1').add(1)", "kubernetes.Quantity"),
        ("[1, 2].sum()", "int"),
        ("{'a': [1]}.transformMap(k, v, v[0])", "map(string, int)"),
        ("format.named('uri').hasValue()", "bool"),
        ("'a'.split(',')", "list(string)"),
        ("optional.none()", "optional_type(dyn)"),
    ] {
        let program = env().compile(source).unwrap_or_else(|errors| panic!("{source}: {errors}"));
        assert_eq!(program.output().to_string(), expected, "{source}");
    }
}

#[test]
fn references_are_known() {
    let program = env().compile("self.replicas > 1 || oldSelf.hasValue()").unwrap();
    assert!(program.references("self") && program.references("oldSelf") && !program.references("x"));
    let program = env().compile("[1].all(x, x > 0)").unwrap();
    assert!(!program.references("x"));
}

#[test]
fn limits_hold_on_hostile_sources() {
    let env = Env::new().variable("a", Type::Int);
    let message = |source: &str| env.compile(source).unwrap_err().issues[0].message.clone();
    let deep = "expression recursion limit exceeded: 250";
    assert_eq!(message(&"(".repeat(5000)), deep);
    assert_eq!(message(&"[".repeat(5000)), deep);
    assert_eq!(message(&"{1:".repeat(5000)), deep);
    assert_eq!(message(&format!("{}a", "-a+".repeat(5000))), deep);
    assert_eq!(message(&format!("1{}", "+1".repeat(40_000))), deep);
    assert_eq!(message(&format!("a{}", ".b".repeat(40_000))), deep);
    assert_eq!(message(&"a?a:".repeat(20_000)), deep);
    assert!(message(&"1".repeat(200_000)).starts_with("expression code point size exceeds limit"));
    // Long is fine when it is not deep.
    assert!(env.compile(&format!("a > 0{}", " && a > 0".repeat(10_000))).is_ok());
    assert!(env.compile(&format!("[{}]", "1,".repeat(40_000))).is_ok());
    assert!(env.compile(&format!("{}a", "-".repeat(50_000))).is_ok());
    assert!(env.compile(&format!("{}1{}", "(".repeat(200), ")".repeat(200))).is_ok());
    assert!(env.compile(&format!("1{}", "+1".repeat(240))).is_ok());
}

#[test]
fn exponential_types_are_refused() {
    let mut source = "[]".to_owned();
    for level in 0..60 {
        source = format!("[{source}].map(v{level}, {{'k': [v{level}], 'l': [v{level}]}})");
    }
    let _ = Env::new().compile(&source);
    let mut source = "1".to_owned();
    for _ in 0..40 {
        source = format!("[].map(x, {{x: {source}, x: x}})");
    }
    let _ = Env::new().compile(&source);
}
