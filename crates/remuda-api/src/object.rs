//! Objects whose spec may be missing, or that have none.
//!
//! What `kube` derives does not read an object without a spec, and a single one that cannot be read would
//! stop a watch of all of them. Here a missing spec is an empty one.

/// Defines an object and what `kube` must know of it. Fields beside spec and status are in the last braces;
/// after two dots comes the map of what has no field here.
macro_rules! object {
    (
        $(#[$attr:meta])*
        mod $module:ident; $name:ident = $kind:literal, $group:path, $version:literal, $plural:literal, $scope:ident;
        $(spec: $spec:ty;)? $(status: $status:ty;)?
        {
            $($(#[$field_attr:meta])* pub $field:ident: $type:ty,)*
            $(..$flat:ident: $flat_type:ty,)?
        }
    ) => {
        mod $module {
            #[allow(unused_imports, reason = "not every object has fields of its own")]
            use super::*;
            use ::std::borrow::Cow;
            use ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

            fn api_version() -> String {
                [$group, "/", $version].concat()
            }

            fn kind() -> String {
                $kind.to_owned()
            }

            $(#[$attr])*
            #[derive(Debug, Clone, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
            #[cfg_attr(test, derive(::schemars::JsonSchema))]
            #[serde(rename_all = "camelCase")]
            pub struct $name {
                #[serde(default = "api_version")]
                pub api_version: String,
                #[serde(default = "kind")]
                pub kind: String,
                #[serde(default)]
                pub metadata: ObjectMeta,
                $(#[serde(default, deserialize_with = "crate::null_is_default")]
                pub spec: $spec,)?
                $(#[serde(default, skip_serializing_if = "Option::is_none")]
                pub status: Option<$status>,)?
                $($(#[$field_attr])*
                #[serde(
                    default,
                    deserialize_with = "crate::null_is_default",
                    skip_serializing_if = "crate::is_default"
                )]
                pub $field: $type,)*
                $(
                /// What has no field here.
                #[serde(flatten)]
                pub $flat: $flat_type,)?
            }

            impl $name {
                /// An object with nothing but a name.
                pub fn named(name: &str) -> Self {
                    let mut object = Self::default();
                    object.metadata.name = Some(name.to_owned());
                    object
                }
            }

            impl Default for $name {
                fn default() -> Self {
                    Self {
                        api_version: api_version(),
                        kind: kind(),
                        metadata: ObjectMeta::default(),
                        $(spec: <$spec>::default(),)?
                        $(status: None::<$status>,)?
                        $($field: <$type>::default(),)*
                        $($flat: <$flat_type>::default(),)?
                    }
                }
            }

            impl ::kube::Resource for $name {
                type DynamicType = ();
                type Scope = ::k8s_openapi::$scope;

                fn kind(&(): &()) -> Cow<'_, str> {
                    $kind.into()
                }

                fn group(&(): &()) -> Cow<'_, str> {
                    $group.into()
                }

                fn version(&(): &()) -> Cow<'_, str> {
                    $version.into()
                }

                fn plural(&(): &()) -> Cow<'_, str> {
                    $plural.into()
                }

                fn meta(&self) -> &ObjectMeta {
                    &self.metadata
                }

                fn meta_mut(&mut self) -> &mut ObjectMeta {
                    &mut self.metadata
                }
            }

            $(impl ::kube::core::object::HasSpec for $name {
                type Spec = $spec;

                fn spec(&self) -> &$spec {
                    &self.spec
                }

                fn spec_mut(&mut self) -> &mut $spec {
                    &mut self.spec
                }
            })?

            $(impl ::kube::core::object::HasStatus for $name {
                type Status = $status;

                fn status(&self) -> Option<&$status> {
                    self.status.as_ref()
                }

                fn status_mut(&mut self) -> &mut Option<$status> {
                    &mut self.status
                }
            })?
        }
        pub use $module::$name;
    };
}
pub(crate) use object;

/// Reads and writes an object without losing anything, and the schema of its kind accepts and keeps it.
#[cfg(test)]
#[track_caller]
pub(crate) fn check<T>(definition: &str, object: serde_json::Value) -> T
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let typed: T = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(serde_json::to_value(&typed).unwrap(), object);
    let mut crd = crate::crd::named(definition).unwrap();
    remuda_schema::default_crd(&mut crd);
    let view = remuda_schema::CrdView::parse(&crd).unwrap();
    let schema = &view.versions[0].schema;
    assert_eq!(schema.validate(&object, None), []);
    let mut pruned = object;
    let mut unknown = Vec::new();
    schema.prune(&mut pruned, Some(&mut unknown));
    assert_eq!(unknown, Vec::<String>::new());
    typed
}
