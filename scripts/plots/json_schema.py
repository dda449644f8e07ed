"""A validator of the part of JSON Schema (draft 2020-12) that data/schema/ uses.

It knows nothing of the program: a keyword it does not know is an error of the schema.
"""

TYPES = {
    "object": lambda x: isinstance(x, dict),
    "array": lambda x: isinstance(x, list),
    "string": lambda x: isinstance(x, str),
    "boolean": lambda x: isinstance(x, bool),
    "null": lambda x: x is None,
    "integer": lambda x: isinstance(x, int) and not isinstance(x, bool)
    or isinstance(x, float) and x.is_integer(),
    "number": lambda x: isinstance(x, (int, float)) and not isinstance(x, bool),
}
NOTES = {"$schema", "$id", "$defs", "title", "description"}
KEYWORDS = NOTES | {"type", "enum", "const", "properties", "required", "additionalProperties",
                    "items", "minimum", "$ref"}
DEFINITION = "#/$defs/"


def errors(value, schema, path="$", root=None):
    """What is wrong with `value`, one line each. `root`: the schema whose definitions are meant."""
    found, root = [], root or schema
    unknown = set(schema) - KEYWORDS
    if unknown:
        raise ValueError(f"{path}: schema with {sorted(unknown)}")
    if "$ref" in schema:
        return errors(value, root["$defs"][schema["$ref"].removeprefix(DEFINITION)], path, root)
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(TYPES[t](value) for t in types):
        return [f"{path}: expected {' or '.join(types)}, found {value!r:.60}"]
    if "const" in schema and value != schema["const"]:
        found.append(f"{path}: expected {schema['const']!r}, found {value!r:.60}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path}: expected one of {schema['enum']}, found {value!r:.60}")
    if "minimum" in schema and TYPES["number"](value) and value < schema["minimum"]:
        found.append(f"{path}: expected at least {schema['minimum']}, found {value}")
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        found += [f"{path}.{name}: missing" for name in schema.get("required", [])
                  if name not in value]
        others = schema.get("additionalProperties", True)
        for name, member in value.items():
            if name in properties:
                found += errors(member, properties[name], f"{path}.{name}", root)
            elif others is False:
                found.append(f"{path}.{name}: not in the schema")
            elif others is not True:
                found += errors(member, others, f"{path}.{name}", root)
    if isinstance(value, list) and "items" in schema:
        of = schema["items"].get("type")
        if set(schema["items"]) <= NOTES | {"type"} and isinstance(of, str) and all(
                map(TYPES[of], value)):
            return found  # the many numbers of a result
        for i, element in enumerate(value):
            found += errors(element, schema["items"], f"{path}[{i}]", root)
    return found


def add_nulls(value, schema, root=None):
    """Gives every object in `value`, which fits the schema, the members that it may lack, as null."""
    root = root or schema
    if "$ref" in schema:
        add_nulls(value, root["$defs"][schema["$ref"].removeprefix(DEFINITION)], root)
    elif isinstance(value, dict):
        for name, member in schema.get("properties", {}).items():
            if "null" in member.get("type", []):
                value.setdefault(name, None)
            if name in value:
                add_nulls(value[name], member, root)
    elif isinstance(value, list) and {"properties", "items", "$ref"} & set(schema.get("items", {})):
        for element in value:
            add_nulls(element, schema["items"], root)
