//! What a list is asked for, from the query of its URL. Parameters that are not known are ignored.

use remuda_auth::request_info::{form_decoded, is_true};
use remuda_objects::selector::LabelSelector;

use crate::{
    filter::{BadFilter, Filter},
    order::{self, Key},
    path::Path,
};

/// Parameters that are read at most.
const MOST: usize = 256;
/// Parameters of Kubernetes that go on with a write.
const PASSED: [&str; 6] =
    ["dryRun", "propagationPolicy", "gracePeriodSeconds", "fieldManager", "fieldValidation", "force"];

/// A decoded query string.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()).take(MOST);
        let pairs = pairs.map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (form_decoded(key).into_owned(), form_decoded(value).into_owned())
        });
        Self(pairs.collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(is_true)
    }

    /// What a write hands on to the Kubernetes API, as a query string.
    pub(crate) fn passed(&self) -> String {
        let pairs = self.0.iter().filter(|(key, _)| PASSED.contains(&key.as_str()));
        let pairs: Vec<String> = pairs.map(|(key, value)| format!("{key}={}", encoded(value))).collect();
        if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
    }
}

pub(crate) fn encoded(text: &str) -> impl std::fmt::Display + '_ {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC)
}

/// Restricts rows to namespaces, and to namespaces of projects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) names: Vec<String>,
    pub(crate) not: bool,
}

/// What `summary` asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Summary {
    pub(crate) fields: Vec<(String, Path)>,
    pub(crate) only: bool,
    pub(crate) namespaced: bool,
}

/// A list that is asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListQuery {
    pub(crate) filters: Vec<Filter>,
    pub(crate) labels: LabelSelector,
    pub(crate) places: Option<Places>,
    pub(crate) sort: Vec<Key>,
    /// From 1.
    pub(crate) page: usize,
    /// All on one page without it.
    pub(crate) page_size: Option<usize>,
    pub(crate) limit: Option<usize>,
    /// Rows that were shown before, of a list with `limit`.
    pub(crate) offset: usize,
    pub(crate) revision: Option<u64>,
    pub(crate) exclude: Vec<Path>,
    pub(crate) include: Vec<Path>,
    pub(crate) blank: Vec<Path>,
    pub(crate) summary: Summary,
    /// Types whose rights are shown for each object.
    pub(crate) permissions: Vec<String>,
}

impl ListQuery {
    pub(crate) fn parse(parameters: &Parameters) -> Result<Self, BadFilter> {
        let filters: Vec<Filter> = parameters.all("filter").map(Filter::parse).collect::<Result<_, _>>()?;
        let labels = parameters.get("labelSelector").unwrap_or_default();
        let labels = LabelSelector::parse(labels).map_err(|error| BadFilter(error.to_string()))?;
        let number = |name: &str| parameters.get(name).and_then(|value| value.trim().parse::<i64>().ok());
        let positive = |name: &str| number(name).and_then(|number| usize::try_from(number).ok());
        let paths = |name: &str| -> Vec<Path> { parameters.all(name).flat_map(comma_paths).collect() };
        let revision = match parameters.get("revision").map(str::trim).filter(|text| !text.is_empty()) {
            None => None,
            Some(text) => match text.parse::<u64>() {
                Ok(revision) => Some(revision),
                Err(_) => return Err(BadFilter(format!("the revision {text:?} is not a number"))),
            },
        };
        let summary = Summary {
            fields: parameters
                .all("summary")
                .flat_map(|fields| fields.split(','))
                .filter_map(|field| Some((field.trim().to_owned(), Path::parse(field)?)))
                .take(16)
                .collect(),
            only: parameters.flag("summaryonly"),
            namespaced: parameters.flag("summarynamespaced"),
        };
        let sort = parameters.get("sort").map(order::parse).unwrap_or_default();
        Ok(Self {
            filters,
            labels,
            places: places(parameters),
            sort,
            page: positive("page").unwrap_or(1).max(1),
            page_size: positive("pagesize").filter(|size| *size > 0),
            limit: positive("limit").filter(|limit| *limit > 0),
            offset: parameters.get("continue").and_then(|token| token.parse().ok()).unwrap_or_default(),
            revision,
            exclude: paths("exclude"),
            include: paths("include"),
            blank: paths("excludeValues"),
            summary,
            permissions: parameters
                .all("checkPermissions")
                .flat_map(|types| types.split(','))
                .map(|kind| kind.trim().to_owned())
                .filter(|kind| !kind.is_empty())
                .take(32)
                .collect(),
        })
    }
}

fn comma_paths(text: &str) -> impl Iterator<Item = Path> + '_ {
    text.split(',').filter_map(Path::parse)
}

/// `projectsornamespaces=a,b`, or `projectsornamespaces!=a,b`, of which `!` is the end of the name.
fn places(parameters: &Parameters) -> Option<Places> {
    const NAME: &str = "projectsornamespaces";
    const NOT: &str = "projectsornamespaces!";
    let names = |value: &str| -> Vec<String> {
        let names = value.split(',').map(str::trim);
        // Rancher's dashboard says of some what they are.
        let names = names.map(|name| {
            ["ns://", "project://"].iter().find_map(|kind| name.strip_prefix(kind)).unwrap_or(name)
        });
        names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    if let Some(value) = parameters.get(NOT) {
        return Some(Places { names: names(value), not: true });
    }
    let value = parameters.get(NAME)?;
    let names = names(value);
    (!names.is_empty()).then_some(Places { names, not: false })
}

#[cfg(test)]
mod requests;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(query: &str) -> ListQuery {
        ListQuery::parse(&Parameters::parse(Some(query))).unwrap()
    }

    #[test]
    fn a_list_is_asked_for_as_the_dashboard_does() {
        let query = parsed(
            "page=2&pagesize=100&sort=metadata.namespace,-metadata.name&filter=metadata.name~demo&filter=spec.internal!=true\
             &projectsornamespaces=p-1,default&exclude=metadata.managedFields&limit=-1&name_ne=x",
        );
        assert_eq!((query.page, query.page_size, query.limit), (2, Some(100), None));
        assert_eq!(query.filters.len(), 2);
        assert_eq!(query.sort.len(), 2);
        assert_eq!(query.exclude.len(), 1);
        let places = Places { names: vec!["p-1".to_owned(), "default".to_owned()], not: false };
        assert_eq!(query.places, Some(places));
    }

    #[test]
    fn odd_numbers_are_no_reason_to_fail() {
        let query = parsed("page=0&pagesize=-3&limit=99999999999999999999&continue=x&sort=..");
        assert_eq!((query.page, query.page_size, query.limit, query.offset), (1, None, None, 0));
        let not = parsed("projectsornamespaces!=a");
        assert_eq!(not.places, Some(Places { names: vec!["a".to_owned()], not: true }));
    }

    #[test]
    fn only_options_of_kubernetes_go_on_with_a_write() {
        let parameters = Parameters::parse(Some("dryRun=All&filter=x&propagationPolicy=Foreground"));
        assert_eq!(parameters.passed(), "?dryRun=All&propagationPolicy=Foreground");
        assert_eq!(Parameters::parse(None).passed(), "");
    }
}
