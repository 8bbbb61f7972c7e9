//! Users, tokens and sessions: what browsers, programs and people see of them.
//!
//! Names, labels, cookies and paths are Rancher's where Rancher has them.

/// HTTP paths.
pub mod path {
    /// Login with a local password, as browsers and Rancher's tools do it.
    pub const LOCAL_LOGIN: &str = "/v3-public/localProviders/local";
    /// How people can log in.
    pub const PROVIDERS: &str = "/v3-public/authProviders";
    /// What people see who are not logged in, as newer clients ask for it. Everything else below is nothing.
    pub const PUBLIC: &str = "/v1-public";
    /// The same, as browsers and Rancher's tools ask for it.
    pub const PUBLIC_V3: &str = "/v3-public";
    /// How people can log in, as newer clients ask.
    pub const NEW_PROVIDERS: &str = "/v1-public/authproviders";
    /// Login, as newer ones do it.
    pub const LOGIN: &str = "/v1-public/login";
    /// Begins a login at an OpenID provider.
    pub const SSO: &str = "/v1-public/sso";
    /// Where such a provider sends people back to.
    pub const SSO_BACK: &str = "/verify-auth";
    /// Ends the session of the request.
    pub const LOGOUT: &str = "/v1/logout";
    /// Tokens of the caller. With `?action=logout` it ends the session of the request.
    pub const TOKENS: &str = "/v3/tokens";
    /// Users. With `?action=changepassword` callers choose another password.
    pub const USERS: &str = "/v3/users";
    /// Who the caller is to providers of logins: users and groups of them.
    pub const PRINCIPALS: &str = "/v3/principals";
    /// Clusters, by the names of their management Clusters. With `?action=generateKubeconfig` callers get a
    /// kubeconfig of their own.
    pub const CLUSTERS: &str = "/v3/clusters";
}

/// Cookies.
pub mod cookie {
    /// The token of a session.
    pub const SESSION: &str = "R_SESS";
    /// A login that is under way at an OpenID provider.
    pub const SSO: &str = "R_SSO";
    /// What scripts of our own pages can read and those of others cannot.
    pub const CSRF: &str = "CSRF";
}

/// Header that repeats the cookie of the same purpose.
pub const CSRF_HEADER: &str = "x-api-csrf";

/// Groups.
pub mod group {
    /// Everybody who came with a token of ours or a password.
    pub const AUTHENTICATED: &str = "system:cattle:authenticated";
    /// In other clusters: everybody who has a role there, by the role's name after this.
    pub const ROLE_PREFIX: &str = "remuda:role:";
}

/// What requests say about their user beside the name.
pub mod extra {
    /// Names at authentication providers.
    pub const PRINCIPAL: &str = "principalid";
    /// Name at login.
    pub const USERNAME: &str = "username";
    /// Name of the Token.
    pub const TOKEN: &str = "requesttokenid";
}

/// Annotations.
pub mod annotation {
    /// `true` on Tokens of which only a hash is stored.
    pub const TOKEN_HASHED: &str = "authn.management.cattle.io/token-hashed";
    /// On Secrets with passwords: how they are hashed.
    pub const PASSWORD_HASH: &str = "cattle.io/password-hash";
    /// `true` on the Secret with the password that was made up and told at the first start, until another is chosen.
    /// Written by the server, which tells the user at login.
    pub const FIRST_PASSWORD: &str = "remuda.io/first-password";
    /// `true` on provisioning Clusters whose creator was bound as owner. From then on only bindings count, so
    /// that a binding that is deleted stays deleted. Written by the server.
    pub const CREATOR_BOUND: &str = "remuda.io/creator-bound";
    /// On Tokens of logins: the address the login came from.
    pub const LOGIN_ADDRESS: &str = "remuda.io/login-address";
    /// On Tokens of logins: the program the login came from, in its own words.
    pub const LOGIN_USER_AGENT: &str = "remuda.io/login-user-agent";
}

/// Reasons of refused logins that can be helped: what else is to be sent.
pub mod login_reason {
    /// Another password, as `newPassword`.
    pub const MUST_CHANGE_PASSWORD: &str = "MustChangePassword";
    /// A code of the second factor or a recovery code, as `otp`.
    pub const SECOND_FACTOR_REQUIRED: &str = "SecondFactorRequired";
    /// A code of the secret that the details of the answer tell, as `otp`.
    pub const SECOND_FACTOR_ENROLMENT_REQUIRED: &str = "SecondFactorEnrolmentRequired";
}

/// Why a token is not made, as the `reason` of the Status that says so.
pub mod token_reason {
    /// Who asks has no User: the administrator by certificate, a service account.
    pub const NOT_A_USER: &str = "NotAUser";
}

/// Finalizers.
pub mod finalizer {
    /// On Users: their tokens, bindings, password and second factor must go first.
    pub const USER: &str = "remuda.io/user-cleanup";
}

/// Labels.
pub mod label {
    /// `admin-user` on the User made at the first start.
    pub const BOOTSTRAPPING: &str = "authz.management.cattle.io/bootstrapping";
    /// Value of that label.
    pub const ADMIN_USER: &str = "admin-user";
    /// Value of the label of a User that is made of the name at an authentication provider.
    pub const HASHED_PRINCIPAL: &str = "hashed-principal-name";
}

/// Values of the label that says what a Token is for.
pub mod token_kind {
    /// A login in a browser.
    pub const SESSION: &str = "session";
    /// A login of a program, or a token made for one.
    pub const API: &str = "api";
    /// In the kubeconfig of somebody.
    pub const KUBECONFIG: &str = "kubeconfig";
    /// In the kubeconfig Secret of a cluster; the User stands for the cluster.
    pub const PROVISIONING: &str = "provisioning";
}

/// Login at an OpenID provider.
pub mod oidc {
    /// Name of the AuthConfig, and of the authentication provider in Tokens.
    pub const PROVIDER: &str = "genericoidc";
    /// Names of people there: this, and the subject.
    pub const USER_PRINCIPAL: &str = "genericoidc_user://";
    /// Names of groups there: this, and the group.
    pub const GROUP_PRINCIPAL: &str = "genericoidc_group://";
    /// Key of the client's secret in a Secret.
    pub const SECRET_KEY: &str = "clientsecret";
    /// What is asked for unless configured otherwise.
    pub const SCOPE: &str = "openid profile email groups";
    /// Claim with the groups of somebody unless configured otherwise.
    pub const GROUPS_CLAIM: &str = "groups";
    /// Claim with the name of somebody unless configured otherwise.
    pub const NAME_CLAIM: &str = "name";
    /// Claim with the address of somebody unless configured otherwise.
    pub const EMAIL_CLAIM: &str = "email";
    /// Namespace of what servers tell each other of logins that are under way. Nobody else writes there.
    pub const LOGINS_NAMESPACE: &str = "remuda-logins";
    /// Secret there with the key cookies of such logins are sealed with.
    pub const LOGINS_KEY: &str = "cookie-key";
    /// Key in that Secret.
    pub const LOGINS_KEY_DATA: &str = "key";
    /// Label of Secrets there that are good once: `login` or `code`.
    pub const ONCE_LABEL: &str = "remuda.io/good-once";
    /// Annotation of those: the second they end.
    pub const UNTIL: &str = "remuda.io/until";
    /// Key in them: what somebody gets for a code.
    pub const ONCE_DATA: &str = "waiting";
}

/// Namespace of the Secrets with the hashes of passwords; each is named like its User.
pub const PASSWORDS_NAMESPACE: &str = "cattle-local-user-passwords";
/// Key of the hash in such a Secret.
pub const PASSWORD_KEY: &str = "password";
/// Second factors: Secrets in a namespace of their own, each named like its User.
pub mod second_factor {
    /// Namespace of the Secrets.
    pub const NAMESPACE: &str = "remuda-second-factors";
    /// Key of the secret that codes are made of.
    pub const SECRET: &str = "secret";
    /// Key of `true` once a code was seen.
    pub const CONFIRMED: &str = "confirmed";
    /// Key of the step of the last code that was used.
    pub const LAST_STEP: &str = "last-step";
    /// Key of the hashes of recovery codes that were not used, as JSON.
    pub const RECOVERY: &str = "recovery";

    /// What callers do with their own, as `?action=` on their users.
    pub mod action {
        /// Shows a secret.
        pub const ENROL: &str = "enrolsecondfactor";
        /// Ends the enrolment with a code.
        pub const CONFIRM: &str = "confirmsecondfactor";
        /// Gives it up.
        pub const REMOVE: &str = "removesecondfactor";
        /// Takes away that of another user.
        pub const RESET: &str = "resetsecondfactor";
    }
}
/// Principals of Users that stand for something of the server's own: this, and what they stand for.
pub const SYSTEM_PRINCIPAL: &str = "system://";
/// The ClusterRoleTemplateBinding of who created a cluster, in the namespace of the cluster.
pub const CREATOR_BINDING: &str = "creator-cluster-owner";
/// Authentication provider of local passwords.
pub const LOCAL_PROVIDER: &str = "local";
/// Names of local users at that provider: this, and the User.
pub const LOCAL_PRINCIPAL: &str = "local://";
/// The User made at the first start.
pub const FIRST_USER: &str = "user-admin";
/// Name at login of that user.
pub const FIRST_USERNAME: &str = "admin";

/// Roles that come with the server.
pub mod role {
    /// GlobalRole: everything.
    pub const ADMIN: &str = "admin";
    /// GlobalRole of people: their own matters, and to make clusters.
    pub const USER: &str = "user";
    /// GlobalRole: their own matters.
    pub const USER_BASE: &str = "user-base";
    /// GlobalRole: reads everything but what opens something, and the audit log.
    pub const AUDITOR: &str = "auditor";
    /// RoleTemplate: everything in a cluster.
    pub const CLUSTER_OWNER: &str = "cluster-owner";
    /// RoleTemplate: to look at a cluster.
    pub const CLUSTER_MEMBER: &str = "cluster-member";
    /// RoleTemplate: reads everything in a cluster but its Secrets.
    pub const CLUSTER_VIEWER: &str = "cluster-viewer";
    /// Kubernetes' ClusterRole, and our RoleTemplate for it: reads most things, and what authors of custom resources
    /// add to it.
    pub const VIEW: &str = "view";
}

/// Settings.
pub mod setting {
    /// Minutes any token is good for at most; less than 1 is for ever.
    pub const TOKEN_MAX_TTL: &str = "auth-token-max-ttl-minutes";
    /// Minutes a token is good for that says nothing itself.
    pub const TOKEN_DEFAULT_TTL: &str = "auth-token-default-ttl-minutes";
    /// Minutes a session is good for.
    pub const SESSION_TTL: &str = "auth-user-session-ttl-minutes";
    /// Minutes the token in a kubeconfig is good for that says nothing itself.
    pub const KUBECONFIG_DEFAULT_TTL: &str = "kubeconfig-default-token-ttl-minutes";
    /// Minutes the token in a kubeconfig is good for at most.
    pub const KUBECONFIG_MAX_TTL: &str = "kubeconfig-max-token-ttl-minutes";
    /// Characters a password has at least.
    pub const PASSWORD_LENGTH: &str = "password-min-length";
    /// Who needs a second factor to log in with a password: `off`, `administrators` or `all`.
    pub const SECOND_FACTOR: &str = "auth-second-factor";
    /// All that are numbers.
    pub const NUMBERS: &[&str] = &[
        TOKEN_MAX_TTL,
        TOKEN_DEFAULT_TTL,
        SESSION_TTL,
        KUBECONFIG_DEFAULT_TTL,
        KUBECONFIG_MAX_TTL,
        PASSWORD_LENGTH,
    ];
}

/// In other clusters: what people may there.
pub mod downstream {
    /// On ClusterRoles and ClusterRoleBindings made for roles: `true`.
    pub const LABEL: &str = "authz.cluster.cattle.io/role-template";
    /// Names of them: this, and the RoleTemplate.
    pub const PREFIX: &str = "remuda-role:";
    /// Names of bindings to roles the cluster itself has: this, and the RoleTemplate.
    pub const EXTERNAL_PREFIX: &str = "remuda-role-external:";
}
