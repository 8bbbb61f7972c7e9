//! The Common Expression Language with Kubernetes' libraries: parser, type checker, evaluator
