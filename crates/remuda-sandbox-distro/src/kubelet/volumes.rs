//! Volumes of a Pod: directories below the Pod's own, and a tree in which they are where the
//! containers expect them.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{
        ConfigMap, Container, DownwardAPIVolumeFile, KeyToPath, Pod, ProjectedVolumeSource, Secret,
        ServiceAccountTokenProjection, Volume,
    },
};
use kube::{Api, Client, ResourceExt, api::PostParams};

use super::env::field_value;
use crate::files;

/// Why a volume is not there yet.
pub type Problem = String;

/// Files of one volume, by their path in it.
type Files = BTreeMap<PathBuf, Vec<u8>>;

pub struct Volumes<'a> {
    pub client: &'a Client,
    pub pod: &'a Pod,
    pub address: std::net::IpAddr,
    /// The Pod's directory.
    pub dir: PathBuf,
}

/// One volume in one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub source: PathBuf,
    pub target: PathBuf,
    pub read_only: bool,
}

impl Volumes<'_> {
    fn source(&self, volume: &Volume) -> PathBuf {
        match &volume.host_path {
            Some(host) => PathBuf::from(&host.path),
            None => self.dir.join("volumes").join(&volume.name),
        }
    }

    /// Makes every volume. Returns when tokens in them should be made again.
    pub async fn prepare(&self) -> Result<Option<Duration>, Problem> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        files::private_dir(&self.dir).map_err(|error| failed(&error))?;
        let mut renew = None;
        for volume in self.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            if clean(Path::new(&volume.name)).is_none() {
                return Err(format!("volume {:?} has no usable name", volume.name));
            }
            let (content, again) =
                self.content(volume).await.map_err(|problem| format!("volume {}: {problem}", volume.name))?;
            renew = match (renew, again) {
                (Some(one), Some(other)) => Some(Duration::min(one, other)),
                (one, other) => one.or(other),
            };
            if volume.host_path.is_none() {
                let dir = self.source(volume);
                fs::create_dir_all(&dir).map_err(|error| failed(&error))?;
                let mode = mode(volume);
                write_all(&dir, &content, mode)
                    .map_err(|error| format!("volume {}: {error}", volume.name))?;
            }
        }
        Ok(renew)
    }

    async fn content(&self, volume: &Volume) -> Result<(Files, Option<Duration>), Problem> {
        if let Some(secret) = &volume.secret {
            let name = secret.secret_name.as_deref().unwrap_or_default();
            return Ok((self.secret(name, secret.items.as_deref(), secret.optional).await?, None));
        }
        if let Some(map) = &volume.config_map {
            return Ok((self.config_map(&map.name, map.items.as_deref(), map.optional).await?, None));
        }
        if let Some(downward) = &volume.downward_api {
            return Ok((self.downward(downward.items.as_deref())?, None));
        }
        if let Some(projected) = &volume.projected {
            return self.projected(projected).await;
        }
        if volume.empty_dir.is_some() || volume.host_path.is_some() {
            return Ok((Files::new(), None));
        }
        Err("volumes of this kind are not supported by the sandbox distribution".to_owned())
    }

    async fn secret(
        &self,
        name: &str,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
    ) -> Result<Files, Problem> {
        let api: Api<Secret> =
            Api::namespaced(self.client.clone(), &self.pod.namespace().unwrap_or_default());
        let found = api.get_opt(name).await.map_err(|error| format!("secret {name:?}: {error}"))?;
        let data = match found {
            Some(secret) => secret.data.unwrap_or_default(),
            None if optional == Some(true) => return Ok(Files::new()),
            None => return Err(format!("secret {name:?} not found")),
        };
        select(data.into_iter().map(|(key, value)| (key, value.0)).collect(), items, optional)
    }

    async fn config_map(
        &self,
        name: &str,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
    ) -> Result<Files, Problem> {
        let api: Api<ConfigMap> =
            Api::namespaced(self.client.clone(), &self.pod.namespace().unwrap_or_default());
        let found = api.get_opt(name).await.map_err(|error| format!("configmap {name:?}: {error}"))?;
        let map = match found {
            Some(map) => map,
            None if optional == Some(true) => return Ok(Files::new()),
            None => return Err(format!("configmap {name:?} not found")),
        };
        let text = map.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes()));
        let binary = map.binary_data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0));
        select(text.chain(binary).collect(), items, optional)
    }

    fn downward(&self, items: Option<&[DownwardAPIVolumeFile]>) -> Result<Files, Problem> {
        let mut files = Files::new();
        for item in items.unwrap_or_default() {
            let path =
                clean(Path::new(&item.path)).ok_or_else(|| format!("{:?} is no usable path", item.path))?;
            let value = match &item.field_ref {
                Some(field) => field_value(self.pod, self.address, field)?,
                None => "0".to_owned(),
            };
            files.insert(path, value.into_bytes());
        }
        Ok(files)
    }

    async fn projected(
        &self,
        projected: &ProjectedVolumeSource,
    ) -> Result<(Files, Option<Duration>), Problem> {
        let mut files = Files::new();
        let mut renew = None;
        for source in projected.sources.iter().flatten() {
            if let Some(secret) = &source.secret {
                files.extend(self.secret(&secret.name, secret.items.as_deref(), secret.optional).await?);
            }
            if let Some(map) = &source.config_map {
                files.extend(self.config_map(&map.name, map.items.as_deref(), map.optional).await?);
            }
            if let Some(downward) = &source.downward_api {
                files.extend(self.downward(downward.items.as_deref())?);
            }
            if let Some(token) = &source.service_account_token {
                let path = clean(Path::new(&token.path))
                    .ok_or_else(|| format!("{:?} is no usable path", token.path))?;
                let (text, again) = self.token(token).await?;
                files.insert(path, text.into_bytes());
                renew = Some(again);
            }
        }
        Ok((files, renew))
    }

    /// A token of the Pod's account that ends with the Pod.
    async fn token(&self, token: &ServiceAccountTokenProjection) -> Result<(String, Duration), Problem> {
        let namespace = self.pod.namespace().unwrap_or_default();
        let account = self.pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
        let account = account.unwrap_or_else(|| "default".to_owned());
        let seconds = token.expiration_seconds.unwrap_or(3600).clamp(600, 1 << 32);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: token.audience.clone().into_iter().collect(),
                expiration_seconds: Some(seconds),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: Some(self.pod.name_any()),
                    uid: self.pod.uid(),
                }),
            },
            ..TokenRequest::default()
        };
        let api: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::namespaced(self.client.clone(), &namespace);
        let answer = api.create_token_request(&account, &PostParams::default(), &request).await;
        let answer = answer.map_err(|error| format!("token of service account {account}: {error}"))?;
        let text = answer.status.map(|status| status.token).ok_or("the API gave no token")?;
        Ok((text, Duration::from_secs(seconds.unsigned_abs() * 8 / 10)))
    }

    /// The mounts of a container, outer ones first.
    pub fn mounts(&self, container: &Container) -> Result<Vec<Mount>, Problem> {
        let volumes = || self.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let mut mounts = Vec::new();
        for mount in container.volume_mounts.iter().flatten() {
            let volume = volumes().find(|volume| volume.name == mount.name);
            let volume = volume.ok_or_else(|| format!("there is no volume {:?}", mount.name))?;
            let target = clean(Path::new(mount.mount_path.trim_start_matches('/')))
                .ok_or_else(|| format!("{:?} is no usable mount path", mount.mount_path))?;
            let mut source = self.source(volume);
            if let Some(sub) = mount.sub_path.as_deref().filter(|sub| !sub.is_empty()) {
                source = source
                    .join(clean(Path::new(sub)).ok_or_else(|| format!("{sub:?} is no usable sub path"))?);
            }
            mounts.push(Mount {
                source,
                target: Path::new("/").join(target),
                read_only: mount.read_only.unwrap_or(false),
            });
        }
        mounts.sort_by_key(|mount| mount.target.components().count());
        Ok(mounts)
    }

    /// The tree for one container, in which mounts are links.
    pub fn tree(&self, container: &str, mounts: &[Mount]) -> Result<PathBuf, Problem> {
        let root = self.dir.join("root").join(container);
        let made = (|| {
            if root.exists() {
                fs::remove_dir_all(&root)?;
            }
            fs::create_dir_all(&root)?;
            for mount in mounts {
                let link = root.join(mount.target.strip_prefix("/").unwrap_or(&mount.target));
                if let Some(parent) = link.parent() {
                    fs::create_dir_all(parent)?;
                }
                match symlink(&mount.source, &link) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    result => result?,
                }
            }
            Ok::<_, io::Error>(())
        })();
        made.map_err(|error| format!("{}: {error}", root.display()))?;
        Ok(root)
    }
}

fn mode(volume: &Volume) -> u32 {
    let given = volume
        .secret
        .as_ref()
        .and_then(|secret| secret.default_mode)
        .or(volume.config_map.as_ref().and_then(|map| map.default_mode))
        .or(volume.projected.as_ref().and_then(|projected| projected.default_mode));
    given.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o644) & 0o777
}

/// The chosen keys under the chosen paths, or all under their own.
fn select(
    mut data: BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    optional: Option<bool>,
) -> Result<Files, Problem> {
    let path = |path: &str| clean(Path::new(path)).ok_or_else(|| format!("{path:?} is no usable path"));
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        return data.into_iter().map(|(key, value)| Ok((path(&key)?, value))).collect();
    };
    let mut files = Files::new();
    for item in items {
        match data.remove(&item.key) {
            Some(value) => drop(files.insert(path(&item.path)?, value)),
            None if optional == Some(true) => {}
            None => return Err(format!("there is no key {:?}", item.key)),
        }
    }
    Ok(files)
}

/// A relative path that stays where it is put.
fn clean(path: &Path) -> Option<PathBuf> {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => result.push(part),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(result).filter(|result| !result.as_os_str().is_empty())
}

/// Writes files one by one; readers see each old or new.
fn write_all(dir: &Path, content: &Files, mode: u32) -> Result<(), files::FileError> {
    for (path, value) in content {
        files::keep(&dir.join(path), value, mode)?;
    }
    Ok(())
}

/// Removes a Pod's directory. What is mounted or linked into it stays.
pub fn remove(dir: &Path) {
    if let Err(error) = fs::remove_dir_all(dir)
        && error.kind() != io::ErrorKind::NotFound
    {
        // Something in it may have been made unreadable on purpose.
        let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o700));
        let _ = fs::remove_dir_all(dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_cannot_leave_their_volume() {
        assert_eq!(clean(Path::new("a/./b")), Some(PathBuf::from("a/b")));
        for bad in ["../a", "/a", "a/../b", "", "."] {
            assert_eq!(clean(Path::new(bad)), None, "{bad}");
        }
    }

    #[test]
    fn items_choose_keys_and_name_files() {
        let data: BTreeMap<String, Vec<u8>> =
            [("a".to_owned(), b"1".to_vec()), ("b".to_owned(), b"2".to_vec())].into();
        let item =
            |key: &str, path: &str| KeyToPath { key: key.to_owned(), path: path.to_owned(), mode: None };
        let chosen = select(data.clone(), Some(&[item("a", "x/y")]), None).unwrap();
        assert_eq!(chosen.keys().collect::<Vec<_>>(), [Path::new("x/y")]);
        assert_eq!(select(data.clone(), None, None).unwrap().len(), 2);
        assert!(select(data.clone(), Some(&[item("c", "x")]), None).is_err());
        assert!(select(data.clone(), Some(&[item("c", "x")]), Some(true)).unwrap().is_empty());
        assert!(select(data, Some(&[item("a", "../x")]), None).is_err());
    }
}
