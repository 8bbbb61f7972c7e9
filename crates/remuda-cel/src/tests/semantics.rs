//! The language: literals, operators, selection, macros, absorption of errors, cost.

use serde_json::json;

use super::{check, env, sample};
use crate::{Budget, Env, EvalError, ObjectType, Type, Value, Vars};

#[test]
fn literals_are_read() {
    check(
        r#"
        1 ⇒ 1
        -1 ⇒ -1
        - -1 ⇒ 1
        0x1F ⇒ 31
        -9223372036854775808 ⇒ -9223372036854775808
        9223372036854775807 ⇒ 9223372036854775807
        9223372036854775808 ⇒ compile: invalid int literal
        18446744073709551615u ⇒ 18446744073709551615u
        18446744073709551616u ⇒ compile: invalid uint literal
        1.5 ⇒ 1.5
        .5 ⇒ 0.5
        1e3 ⇒ 1000.0
        -1.5e-3 ⇒ -0.0015
        true ⇒ true
        null ⇒ null
        'a\'b' ⇒ "a'b"
        "a\n\t\\" ⇒ "a\n\t\\"
        '\x41\101\u00e9\U0001F600' ⇒ "AAé😀"
        r'\d' ⇒ "\\d"
        R"a\n" ⇒ "a\\n"
        '''it's''' ⇒ "it's"
        """a"b""" ⇒ "a\"b"
        b'abc' ⇒ b"abc"
        b'\xff' ⇒ b"�"
        br'\n' ⇒ b"\\n"
        [1, 2] ⇒ [1, 2]
        [1, 2,] ⇒ [1, 2]
        {'a': 1, 'b': 2} ⇒ {"a": 1, "b": 2}
        {1: 'a', 2: 'b'} ⇒ {1: "a", 2: "b"}
        [] ⇒ []
        {} ⇒ {}
        1 + /* ⇒ compile: Syntax error: mismatched input '/' expecting an expression
        1 // one ⇒ 1
        int ⇒ int
        "#,
    );
}

#[test]
fn operators_compute_and_report_overflow() {
    check(
        r#"
        1 + 2 * 3 ⇒ 7
        (1 + 2) * 3 ⇒ 9
        7 / 2 ⇒ 3
        -7 / 2 ⇒ -3
        -7 % 3 ⇒ -1
        7u % 4u ⇒ 3u
        7.0 / 2.0 ⇒ 3.5
        1.0 / 0.0 ⇒ inf
        1 / 0 ⇒ error: division by zero
        1 % 0 ⇒ error: modulus by zero
        1u / 0u ⇒ error: division by zero
        9223372036854775807 + 1 ⇒ error: integer overflow
        -9223372036854775808 - 1 ⇒ error: integer overflow
        -9223372036854775808 / -1 ⇒ error: integer overflow
        -9223372036854775808 % -1 ⇒ error: integer overflow
        -(-9223372036854775807 - 1) ⇒ error: integer overflow
        9223372036854775807 * 2 ⇒ error: integer overflow
        0u - 1u ⇒ error: unsigned integer overflow
        18446744073709551615u + 1u ⇒ error: unsigned integer overflow
        'a' + 'b' ⇒ "ab"
        b'a' + b'b' ⇒ b"ab"
        [1] + [2] ⇒ [1, 2]
        !true ⇒ false
        !!true ⇒ true
        true ? 1 : 2 ⇒ 1
        false ? 1 : true ? 2 : 3 ⇒ 2
        dyn(1) ? 1 : 2 ⇒ error: no such overload
        dyn(1) + dyn('a') ⇒ error: no such overload
        "#,
    );
}

#[test]
fn comparison_crosses_numeric_types() {
    check(
        r#"
        1 < 2 ⇒ true
        1 < 1.5 ⇒ true
        2 > 1u ⇒ true
        1u <= 1.0 ⇒ true
        -1 < 0u ⇒ true
        9223372036854775807 < 9223372036854775807.0 ⇒ true
        'a' < 'b' ⇒ true
        b'a' >= b'b' ⇒ false
        false < true ⇒ true
        duration('1s') < duration('2s') ⇒ true
        1 == 1 ⇒ true
        dyn(1) == dyn(1.0) ⇒ true
        dyn(1) == dyn(1u) ⇒ true
        dyn(1) == dyn('1') ⇒ false
        dyn(1) != null ⇒ true
        dyn(1) < dyn('a') ⇒ error: no such overload
        double('NaN') < 1.0 ⇒ error: NaN values cannot be ordered
        double('NaN') == double('NaN') ⇒ false
        [1, 2] == [1, 2] ⇒ true
        [1, 2] == [2, 1] ⇒ false
        {'a': 1} == {'a': 1} ⇒ true
        {'a': 1} == {'a': 2} ⇒ false
        {'a': 1} == {'b': 1} ⇒ false
        1 == 'a' ⇒ compile: found no matching overload for '_==_' applied to '(int, string)'
        1 in [1, 2] ⇒ true
        3 in [1, 2] ⇒ false
        x in [5, 6] ⇒ true
        x in [x, 1] ⇒ true
        'a' in {'a': 1} ⇒ true
        1u in {1: 1}.map(k, uint(k)) ⇒ true
        "#,
    );
}

#[test]
fn fields_are_read_by_their_declared_type() {
    check(
        r#"
        self.replicas ⇒ 3
        self.ratio ⇒ 2.0
        self.name ⇒ "demo"
        self.__namespace__ ⇒ "default"
        self.a__dash__b ⇒ 7
        self.when ⇒ 2024-02-29T12:30:00Z
        self.day ⇒ 2024-02-29T00:00:00Z
        self.wait ⇒ 5400s
        self.data ⇒ b"hello"
        self.broken ⇒ error: Invalid date-time formatted string yesterday
        self.port == 'http' ⇒ true
        self.port == 80 ⇒ false
        self.any.x[1] ⇒ 2.5
        self.any.x[3] == null ⇒ true
        self.any.y ⇒ error: no such key: y
        has(self.name) ⇒ true
        has(self.missing) ⇒ false
        has(self.nothing) ⇒ false
        has(self.any.x) ⇒ true
        has(self.any.y) ⇒ false
        has(self.labels.app) ⇒ true
        self.missing ⇒ error: no such key: missing
        self.nothing ⇒ error: no such key: nothing
        self.unknown ⇒ compile: undefined field 'unknown'
        self.labels.app ⇒ "web"
        self.labels['a/b'] ⇒ "c"
        self.labels['z'] ⇒ error: no such key: z
        self.names[0] ⇒ "a"
        self.names[3] ⇒ error: index '3' out of range in list size '3'
        self.names[-1] ⇒ error: index '-1' out of range in list size '3'
        [1, 2][dyn(1.0)] ⇒ 2
        [1, 2][dyn('a')] ⇒ error: unsupported index type 'string' in list
        {1: 2}[dyn(1u)] ⇒ 2
        self.items[1].weight ⇒ 2
        size(self.names) ⇒ 3
        self.labels.size() ⇒ 2
        self.keyed == self.keyed ⇒ true
        self.items == self.items ⇒ true
        d.k[1] ⇒ "two"
        self.name.x ⇒ compile: type 'string' does not support field selection
        "#,
    );
}

#[test]
fn set_and_map_lists_ignore_order_and_merge() {
    check(
        r#"
        self.set == ['y', 'x'] ⇒ true
        ['y', 'x'] == self.set ⇒ true
        self.set == ['x', 'z'] ⇒ false
        self.names == ['b', 'a', 'c'] ⇒ false
        self.set + ['y', 'z'] ⇒ ["x", "y", "z"]
        (self.set + ['z']) == ['z', 'y', 'x'] ⇒ true
        self.keyed + self.keyed == self.keyed ⇒ true
        (self.items + self.items).size() ⇒ 4
        "#,
    );
}

#[test]
fn map_lists_compare_by_key() {
    let item = ObjectType::new("Item").field("name", Type::String).field("n", Type::Int);
    let semantics = crate::ListSemantics::Map(vec!["name".to_owned()]);
    let list = Type::list_with(Type::object(item), semantics);
    let env = Env::new().variable("a", list.clone()).variable("b", list);
    let a = json!([{"name": "x", "n": 1}, {"name": "y", "n": 2}]);
    let b = json!([{"name": "y", "n": 2}, {"name": "x", "n": 1}]);
    let c = json!([{"name": "y", "n": 3}, {"name": "z", "n": 1}]);
    let holds = |source: &str, b| {
        let program = env.compile(source).unwrap();
        let vars = Vars::new().json("a", &a).json("b", b);
        program.eval(&vars, &mut Budget::new(10_000)).unwrap().as_bool()
    };
    assert_eq!(holds("a == b", &b), Some(true));
    assert_eq!(holds("a == b", &c), Some(false));
    assert_eq!(holds("(a + b).map(i, i.name) == ['x', 'y', 'z'] && (a + b)[1].n == 3", &c), Some(true));
}

#[test]
fn errors_are_absorbed_when_another_term_decides() {
    check(
        r#"
        1 / 0 > 0 || true ⇒ true
        true || 1 / 0 > 0 ⇒ true
        1 / 0 > 0 && false ⇒ false
        1 / 0 > 0 || false ⇒ error: division by zero
        1 / 0 > 0 && true ⇒ error: division by zero
        1 / 0 > 0 && 1 % 0 > 0 ⇒ error: division by zero
        dyn('a') || true ⇒ true
        [0, 1].exists(i, 1 / i > 0) ⇒ true
        [0, 1].all(i, 1 / i > 5) ⇒ false
        [0, 1].all(i, 1 / i > 0) ⇒ error: division by zero
        [0, 1].exists(i, 1 / i > 5) ⇒ error: division by zero
        [0, 1].exists_one(i, 1 / i > 0) ⇒ error: division by zero
        true || false && false ⇒ true
        "#,
    );
}

#[test]
fn macros_visit_lists_and_maps() {
    check(
        r#"
        [1, 2, 3].all(i, i > 0) ⇒ true
        [].all(i, i > 0) ⇒ true
        [1, 2, 3].exists(i, i > 2) ⇒ true
        [].exists(i, i > 2) ⇒ false
        [1, 2, 3].exists_one(i, i > 2) ⇒ true
        [1, 2, 3].existsOne(i, i > 1) ⇒ false
        [1, 2, 3].map(i, i * 2) ⇒ [2, 4, 6]
        [1, 2, 3].map(i, i > 1, i * 2) ⇒ [4, 6]
        [1, 2, 3].filter(i, i > 1) ⇒ [2, 3]
        {'a': 1, 'b': 2}.map(k, k) ⇒ ["a", "b"]
        {'a': 1, 'b': 2}.all(k, k < 'c') ⇒ true
        self.labels.exists(k, k == 'app') ⇒ true
        self.items.map(i, self.items.map(j, i.weight * j.weight)) ⇒ [[1, 2], [2, 4]]
        self.items.all(i, self.items.exists_one(j, i.name == j.name)) ⇒ true
        [1, 2].all(i, v, i < v) ⇒ true
        {'a': 1}.exists(k, v, k == 'a' && v == 1) ⇒ true
        {'a': 1, 'b': 1}.existsOne(k, v, v == 1) ⇒ false
        [5, 6].transformList(i, v, i + v) ⇒ [5, 7]
        [5, 6].transformList(i, v, i > 0, i + v) ⇒ [7]
        {'a': 1, 'b': 2}.transformMap(k, v, v * 2) ⇒ {"a": 2, "b": 4}
        {'a': 1, 'b': 2}.transformMap(k, v, v > 1, v * 2) ⇒ {"b": 4}
        ['x', 'y'].transformMap(i, v, v) ⇒ {0: "x", 1: "y"}
        {'a': 'b'}.transformMapEntry(k, v, {v: k}) ⇒ {"b": "a"}
        ['a', 'a'].transformMapEntry(i, v, {v: i}) ⇒ error: insert failed: key a already exists
        [1].map(x, x + 1) ⇒ [2]
        dyn([1, 2]).map(i, i) ⇒ [1, 2]
        dyn(1).map(i, i) ⇒ error: no such overload
        [1, 2].all(i, i, true) ⇒ compile: duplicate variable name: i
        [1, 2].all(1, true) ⇒ compile: argument must be a simple name
        has(x) ⇒ compile: invalid argument to has() macro
        1.all(i, true) ⇒ compile: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)
        [1].all(i, i) ⇒ compile: expected type 'bool' but found 'int'
        "#,
    );
}

#[test]
fn optionals_carry_absence() {
    check(
        r#"
        optional.of(1) ⇒ some(1)
        optional.none() ⇒ none
        optional.ofNonZeroValue('') ⇒ none
        optional.ofNonZeroValue(3) ⇒ some(3)
        optional.ofNonZeroValue(timestamp('0001-01-01T00:00:00Z')) ⇒ none
        optional.ofNonZeroValue(timestamp(0)) ⇒ some(1970-01-01T00:00:00Z)
        optional.of(1).value() ⇒ 1
        optional.none().value() ⇒ error: optional.none() dereference
        optional.none().hasValue() ⇒ false
        optional.none().orValue(1) ⇒ 1
        optional.of(2).orValue(1 / 0) ⇒ 2
        optional.none().or(optional.of(3)) ⇒ some(3)
        oldSelf.hasValue() ⇒ false
        oldSelf.replicas ⇒ none
        oldSelf.?replicas.orValue(9) ⇒ 9
        self.?missing ⇒ none
        self.?missing.orValue('d') ⇒ "d"
        self.?name ⇒ some("demo")
        self.?any.?x[?0] ⇒ some(1)
        self.?any.?y.?z ⇒ none
        self.names[?0] ⇒ some("a")
        self.names[?7] ⇒ none
        self.labels[?'app'] ⇒ some("web")
        self.labels[?'zzz'] ⇒ none
        [1, ?optional.none(), ?optional.of(2)] ⇒ [1, 2]
        {'a': 1, ?'b': optional.none()} ⇒ {"a": 1}
        {?'b': optional.of(2)} ⇒ {"b": 2}
        optional.of(2).optMap(v, v * 2) ⇒ some(4)
        optional.none().optMap(v, v) ⇒ none
        optional.of([1]).optFlatMap(v, v[?0]) ⇒ some(1)
        optional.of(1) == optional.of(1) ⇒ true
        [optional.of(1), optional.none()].unwrapOpt() ⇒ [1]
        [?1] ⇒ compile: expected type 'optional_type(int)' but found 'int'
        "#,
    );
}

#[test]
fn the_budget_ends_every_evaluation() {
    let object = sample();
    let spend = |source: &str, limit| {
        let program = env().compile(source).unwrap();
        let mut budget = Budget::new(limit);
        let failed = program.eval(&Vars::new().json("self", &object), &mut budget).err();
        (failed, budget.used())
    };
    let source = "lists.range(1000).all(a, lists.range(1000).all(b, a + b >= 0))";
    assert_eq!(spend(source, 10_000), (Some(EvalError::Cost), 10_000));
    // Nor can `||` hide it.
    assert_eq!(spend(&format!("{source} || true"), 10_000), (Some(EvalError::Cost), 10_000));
    let (failed, used) = spend("self.replicas <= 10", 1000);
    assert!(failed.is_none() && (2..10).contains(&used), "{used}");
}

#[test]
fn built_values_stay_bounded() {
    let mut source = "'xxxxxxxx'".to_owned();
    for _ in 0..40 {
        source = format!("[{source}].map(s, s + s)[0]");
    }
    let program = Env::new().compile(&source).unwrap();
    let error = program.eval(&Vars::new(), &mut Budget::new(u64::MAX)).unwrap_err();
    assert_eq!(error.to_string(), "string is too long");
    let mut source = "[1]".to_owned();
    for _ in 0..40 {
        source = format!("[{source}].map(s, s + s)[0]");
    }
    let program = Env::new().compile(&source).unwrap();
    let error = program.eval(&Vars::new(), &mut Budget::new(u64::MAX)).unwrap_err();
    assert_eq!(error.to_string(), "list is too long");
}

#[derive(Debug)]
struct Answers;

impl<'a> crate::Lazy<'a> for Answers {
    fn field(&self, name: &str, budget: &mut Budget) -> Option<Result<Value<'a>, EvalError>> {
        budget.charge(1).err().map(Err).or_else(|| match name {
            "six" => Some(Ok(Value::Int(6))),
            "bad" => Some(Err(EvalError::failed("no answer"))),
            _ => None,
        })
    }
}

#[test]
fn callers_answer_for_lazy_objects() {
    let variables = ObjectType::new("Variables").field("six", Type::Int).field("bad", Type::Int);
    let env = Env::new().variable("variables", Type::object(variables));
    let run = |source: &str| {
        let program = env.compile(source).map_err(|errors| errors.to_string())?;
        let vars = Vars::new().value("variables", Value::lazy(std::sync::Arc::new(Answers)));
        let value = program.eval(&vars, &mut Budget::new(1000)).map_err(|error| error.to_string())?;
        Ok::<_, String>(super::show(&value))
    };
    assert_eq!(run("variables.six * 7"), Ok("42".to_owned()));
    assert_eq!(run("variables.bad"), Err("no answer".to_owned()));
    assert_eq!(run("has(variables.six)"), Ok("true".to_owned()));
    assert!(run("variables.seven").unwrap_err().contains("undefined field 'seven'"));
}

#[test]
fn policy_variables_are_evaluated_once_and_only_when_needed() {
    let mut fields = ObjectType::new("Variables");
    let mut definitions = Vec::new();
    // Long chains do not nest evaluations.
    let mut sources = vec![("v0".to_owned(), "self.replicas".to_owned())];
    sources.extend((1..500).map(|n| (format!("v{n}"), format!("variables.v{} + 1", n - 1))));
    sources.push(("bad".to_owned(), "1 / (variables.v0 - 3)".to_owned()));
    sources.push(("big".to_owned(), "lists.range(1000).map(i, i)".to_owned()));
    for (name, source) in sources {
        let env = env().variable("variables", Type::object(fields.clone()));
        let program = env.compile(&source).unwrap();
        fields = fields.field(&name, program.output().clone());
        definitions.push((name, program));
    }
    let object = sample();
    let run = |source: &str, limit| {
        let env = env().variable("variables", Type::object(fields.clone()));
        let program = env.compile(source).unwrap();
        let vars = Vars::new().json("self", &object);
        let vars = vars.clone().value("variables", crate::variables(&definitions, vars));
        let value = program.eval(&vars, &mut Budget::new(limit)).map_err(|error| error.to_string())?;
        Ok::<_, String>(super::show(&value))
    };
    assert_eq!(run("variables.v499", 100_000), Ok("502".to_owned()));
    assert_eq!(run("variables.v499 + variables.v499 == 1004", 3_000), Ok("true".to_owned()));
    assert_eq!(run("variables.bad", 100_000), Err("division by zero".to_owned()));
    assert_eq!(run("variables.bad > 0 || variables.v1 == 4", 100_000), Ok("true".to_owned()));
    assert_eq!(run("variables.v1", 50), Ok("4".to_owned()));
    assert_eq!(run("variables.big.size()", 100), Err(EvalError::Cost.to_string()));
    assert_eq!(run("has(variables.v3)", 100), Ok("true".to_owned()));
}

#[test]
fn variables_cannot_nest_without_end() {
    let mut fields = ObjectType::new("Variables").field("v0", Type::Dyn);
    let mut definitions = vec![("v0".to_owned(), env().compile("dyn([1])").unwrap())];
    for n in 1..2000 {
        let env = env().variable("variables", Type::object(fields.clone()));
        definitions.push((format!("v{n}"), env.compile(&format!("dyn([variables.v{}])", n - 1)).unwrap()));
        fields = ObjectType::new("Variables").field(&format!("v{n}"), Type::Dyn);
    }
    let program = env().variable("variables", Type::object(fields)).compile("variables.v1999").unwrap();
    let vars = Vars::new().value("variables", crate::variables(&definitions, Vars::new()));
    let error = program.eval(&vars, &mut Budget::new(10_000_000)).unwrap_err();
    assert_eq!(error.to_string(), "value of a variable is nested too deeply");
}

#[test]
fn the_deepest_expressions_evaluate_on_a_small_stack() {
    let nest = |open: &str, inner: &str, close: &str, depth: usize| {
        format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
    };
    let sources = [
        nest("(", "1", ")", 240),
        nest("[", "1", "]", 240),
        nest("{'a': ", "1", "}", 240),
        nest("-(", "x", ")", 240),
        nest("(1 + ", "x", ")", 240),
        nest("int(", "x", ")", 240),
        nest("(true ? ", "x", " : 1)", 120),
        nest("[1].map(a, ", "x", ")", 240),
        nest("[1].all(a, ", "true", ")", 240),
        nest("optional.of(1).optMap(a, ", "a", ")", 240),
        nest("(true && ", "true", ")", 120),
        format!("d{}", "[0]".repeat(240)),
        format!("'a'{}", ".trim()".repeat(240)),
        format!("[[1]]{}", ".map(i, i)".repeat(240)),
    ];
    let object = sample();
    let (x, d) = (json!(5), json!([1]));
    for source in &sources {
        let program = env().compile(source).unwrap_or_else(|errors| panic!("{source}: {errors}"));
        let vars = Vars::new().json("self", &object).json("x", &x).json("d", &d);
        let value = program.eval(&vars, &mut Budget::new(1_000_000));
        if let Ok(value) = value {
            let _ = value.to_json(&mut Budget::new(1_000_000));
        }
    }
}

#[test]
fn a_missing_variable_fails_only_where_it_is_used() {
    let either = env().compile("x == 5 || self.replicas == 3").unwrap();
    let missing = env().compile("self.replicas == 3").unwrap();
    let x = json!(5);
    let vars = Vars::new().json("x", &x);
    assert_eq!(either.eval(&vars, &mut Budget::new(100)).unwrap().as_bool(), Some(true));
    let error = missing.eval(&vars, &mut Budget::new(100)).unwrap_err();
    assert_eq!(error.to_string(), "no such attribute(s): self");
}

#[test]
fn programs_and_values_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<crate::Program>();
    shared::<Value<'static>>();
}
