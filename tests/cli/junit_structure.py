"""What JUnit XML may be: elements, where they stand, and their attributes.

After the schema that Jenkins checks files by, junit-10.xsd of https://github.com/jenkinsci/xunit-plugin
(src/main/resources/org/jenkinsci/plugins/xunit/types/model/xsd), as far as our files go; and what no schema
says: that the totals are those of the test cases.
"""
import re
import xml.etree.ElementTree as ElementTree

COUNT, SECONDS = re.compile(r"[0-9]+"), re.compile(r"[0-9]+(\.[0-9]*)?")
ANY, SOME = re.compile(r".*", re.DOTALL), re.compile(r".+", re.DOTALL)
TOTALS = {"tests": COUNT, "failures": COUNT, "errors": COUNT}
RESULT = (set(), {"message": ANY, "type": ANY}, set())
# Element: children, attributes, which of these must be there.
ELEMENTS = {
    "testsuites": ({"testsuite"}, {**TOTALS, "name": ANY, "time": SECONDS}, set()),
    "testsuite": ({"testcase"}, {**TOTALS, "skipped": COUNT, "name": SOME, "time": SECONDS},
                  {"name", "tests", "failures", "errors"}),
    "testcase": ({"failure", "error", "skipped"}, {"name": SOME, "classname": SOME, "time": SECONDS}, {"name"}),
    "failure": RESULT, "error": RESULT, "skipped": RESULT,
}


def element_errors(element, path):
    children, attributes, required = ELEMENTS[element.tag]
    found = [f"{path}/@{name}: missing" for name in sorted(required - set(element.attrib))]
    for name, value in element.attrib.items():
        if name not in attributes:
            found.append(f"{path}/@{name}: not in the schema")
        elif not attributes[name].fullmatch(value):
            found.append(f"{path}/@{name}: found {value!r}")
    for i, child in enumerate(element):
        at = f"{path}/{child.tag}[{i}]"
        if child.tag in children:
            found += element_errors(child, at)
        else:
            found.append(f"{at}: not in the schema")
    return found


def errors(text):
    """What is wrong with a document, one line each."""
    root = ElementTree.fromstring(text)
    if root.tag != "testsuites":
        return [f"/{root.tag}: expected testsuites"]
    found = element_errors(root, "/testsuites")
    for parent in [] if found else [root, *root]:
        cases = list(parent.iter("testcase"))
        for name, tag in [("tests", None), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")]:
            n = sum(tag is None or case.find(tag) is not None for case in cases)
            if name in parent.attrib and int(parent.get(name)) != n:
                found.append(f"{parent.tag}/@{name}: expected {n}, found {parent.get(name)}")
    names = [(case.get("classname", ""), case.get("name", "")) for case in root.iter("testcase")]
    found += [f"{name}: twice" for name in sorted(set(names)) if names.count(name) > 1]
    return found
