//! What a caller may do.

use std::sync::Arc;

use crate::{Access, AccessType, Asked, Authorizer, Budget, Decision, Env, Question, Shape, Type, Vars};

/// Allows getting ConfigMaps and `/healthz`; says in the reason what it was asked.
#[derive(Debug)]
struct Asking;

impl Authorizer for Asking {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let account = question.account.map(|(namespace, name)| format!("{namespace}:{name} "));
        let (allowed, asked) = match question.asked {
            Asked::Path(path) => (path == "/healthz", path.to_owned()),
            Asked::Resource { group, resource, subresource, namespace, name } => (
                resource == "configmaps" && question.verb == "get",
                format!("{group}|{resource}|{subresource}|{namespace}|{name}"),
            ),
        };
        let error = (question.verb == "fail").then(|| "broken".to_owned());
        let reason = format!("{}{} {asked}", account.unwrap_or_default(), question.verb);
        Decision { allowed, reason, error }
    }
}

fn env() -> Env {
    Env::new()
        .variable("authorizer", Type::Access(AccessType::Authorizer))
        .variable("authorizer.requestResource", Type::Access(AccessType::ResourceCheck))
        .variable("any", Type::Dyn)
}

fn run_with(source: &str, budget: &mut Budget) -> Result<String, String> {
    let program = env().compile(source).map_err(|errors| errors.issues[0].message.clone())?;
    let authorizer: Arc<dyn Authorizer> = Arc::new(Asking);
    let parts = ["", "configmaps", "", "ns", "n"];
    let vars = Vars::new()
        .value("authorizer", Access::authorizer(authorizer.clone()))
        .value("authorizer.requestResource", Access::request_resource(authorizer.clone(), parts))
        .value("any", Access::authorizer(authorizer));
    let value = program.eval(&vars, budget).map_err(|error| error.to_string())?;
    Ok(match value {
        crate::Value::String(text) => text.to_string(),
        crate::Value::Bool(bool) => bool.to_string(),
        crate::Value::Type(name) => name.to_string(),
        other => format!("{other:?}"),
    })
}

fn run(source: &str) -> Result<String, String> {
    run_with(source, &mut Budget::new(10_000_000))
}

#[test]
fn a_check_asks_what_was_said() {
    for (source, expected) in [
        ("authorizer.path('/healthz').check('get').allowed()", "true"),
        ("authorizer.path('/livez').check('get').reason()", "get /livez"),
        ("authorizer.group('').resource('configmaps').check('get').allowed()", "true"),
        ("authorizer.group('').resource('configmaps').check('delete').allowed()", "false"),
        (
            "authorizer.group('g').resource('r').subresource('s').namespace('ns').name('n').check('v').reason()",
            "v g|r|s|ns|n",
        ),
        (
            "authorizer.group('g').resource('r').fieldSelector('a=b').labelSelector('c').check('v').reason()",
            "v g|r|||",
        ),
        ("authorizer.requestResource.check('get').reason()", "get |configmaps||ns|n"),
        ("authorizer.requestResource.name('other').check('get').reason()", "get |configmaps||ns|other"),
        (
            "authorizer.serviceAccount('ns', 'acc').group('').resource('pods').check('list').reason()",
            "ns:acc list |pods|||",
        ),
        ("authorizer.path('/x').check('get').errored()", "false"),
        ("authorizer.path('/x').check('fail').error()", "broken"),
        ("any.path('/healthz').check('get').allowed()", "true"),
        ("type(authorizer)", "kubernetes.authorization.Authorizer"),
    ] {
        assert_eq!(run(source).as_deref(), Ok(expected), "{source}");
    }
}

#[test]
fn what_cannot_be_asked_is_an_error() {
    for (source, expected) in [
        ("authorizer.path(' ').check('get').allowed()", "path must not be empty"),
        ("authorizer.group('').resource('').check('get').allowed()", "resource must not be empty"),
        (
            "authorizer.serviceAccount('Not', 'a').path('/').check('get').allowed()",
            "Invalid service account namespace",
        ),
        (
            "authorizer.serviceAccount('a', '-').path('/').check('get').allowed()",
            "Invalid service account name",
        ),
        ("authorizer.missing", "undefined field 'missing'"),
        (
            "authorizer.resource('x')",
            "found no matching overload for 'resource' applied to 'kubernetes.authorization.Authorizer.(string)'",
        ),
        ("authorizer == authorizer", "no such overload"),
    ] {
        assert_eq!(run(source).unwrap_err(), expected, "{source}");
    }
}

#[test]
fn a_check_costs_so_much_that_two_fit_into_an_expression() {
    let checks =
        |count: usize| vec!["authorizer.path('/healthz').check('get').allowed()"; count].join(" && ");
    let mut budget = Budget::with_each(10_000_000, 1_000_000);
    assert_eq!(run_with(&checks(2), &mut budget).as_deref(), Ok("true"));
    assert!((700_000..700_020).contains(&budget.used()), "{}", budget.used());
    let error = run_with(&checks(3), &mut budget).unwrap_err();
    assert_eq!(error, "operation cancelled: actual cost limit exceeded");
    // Another expression has its own share, as long as there is something left for all.
    assert_eq!(run_with(&checks(2), &mut budget).as_deref(), Ok("true"));
    let mut little = Budget::with_each(500_000, 1_000_000);
    assert!(run_with(&checks(2), &mut little).is_err());
    let source = "authorizer.group('').resource('r').labelSelector('a in (b)').check('get').allowed()";
    let cost = env().compile(source).unwrap().cost(source, &Shape::default());
    // Two builders, a selector of eight characters, the check, the answer and the variable.
    assert_eq!(cost, 2 + (10 + 1 + 4 * 50) + 350_000 + 1 + 1);
}

#[test]
fn variables_are_charged_to_what_is_left_for_all_but_have_a_share_each() {
    let check = "authorizer.path('/healthz').check('get').allowed()";
    let two = format!("{check} && {check}");
    let program = Env::new().variable("variables", Type::Dyn).compile("variables.a && variables.b").unwrap();
    let definitions: Vec<_> =
        ["a", "b"].iter().map(|name| ((*name).to_owned(), env().compile(&two).unwrap())).collect();
    let authorizer: Arc<dyn Authorizer> = Arc::new(Asking);
    let vars = Vars::new().value("authorizer", Access::authorizer(authorizer));
    let vars = vars.clone().value("variables", crate::variables(&definitions, vars));
    let mut budget = Budget::with_each(10_000_000, 1_000_000);
    assert_eq!(program.eval(&vars, &mut budget).unwrap().as_bool(), Some(true));
    assert!(budget.used() > 1_400_000);
}
