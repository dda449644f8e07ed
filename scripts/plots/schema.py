"""What is wrong with a document, by its JSON Schema (draft 2020-12), in lines of the project's own form."""

from plots.packages import package


def says(error):
    """Lines about one error of the package jsonschema."""
    path, found = error.json_path, f"found {error.instance!r:.60}"
    if error.validator == "required":
        return [f"{path}.{name}: missing" for name in error.validator_value if name not in error.instance]
    if error.validator == "additionalProperties":
        return [f"{path}.{name}: not in the schema" for name in error.instance
                if name not in error.schema.get("properties", {})]
    expected = {"type": lambda types: types if isinstance(types, str) else " or ".join(types),
                "const": repr, "enum": "one of {}".format, "minimum": "at least {}".format}
    if error.validator in expected:
        return [f"{path}: expected {expected[error.validator](error.validator_value)}, {found}"]
    return [f"{path}: expected {error.validator} {error.validator_value!r:.60}, {found}"]


def errors(value, schema):
    """What is wrong with `value`, a line for each member; empty: it fits."""
    schema = {name: part for name, part in schema.items() if name != "$id"}  # old versions would look for it
    found = package("jsonschema").Draft202012Validator(schema).iter_errors(value)
    return list(dict.fromkeys(line for error in found for line in says(error)))


def add_nulls(value, schema, root=None):
    """Gives every object in `value`, which fits the schema, the members that it may lack, as null."""
    root = root or schema
    if "$ref" in schema:
        add_nulls(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root)
    elif isinstance(value, dict):
        for name, member in schema.get("properties", {}).items():
            if "null" in member.get("type", []):
                value.setdefault(name, None)
            if name in value:
                add_nulls(value[name], member, root)
    elif isinstance(value, list) and {"properties", "items", "$ref"} & set(schema.get("items", {})):
        for element in value:
            add_nulls(element, schema["items"], root)
