//! Built-in Kubernetes kinds as data: inventory, types, protobuf, OpenAPI, defaults, validation, tables
