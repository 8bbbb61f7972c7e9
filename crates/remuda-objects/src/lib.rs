//! What the API knows of objects: metadata rules, selectors, tables, and the defaults and validation of built-in kinds.
