"""The systematic mutations: what the literature on mutation testing has for C++, and what is particular to autograd.

Each operator proposes edits of a node. What does not compile is sorted out later by the compiler itself: only it knows
the types (a detach() of what is no tensor, two arguments of different types).
"""

import collections
import re

from source import Edit, Mutant

RELATIONAL = {"<": ["<=", ">="], "<=": ["<", ">"], ">": [">=", "<="], ">=": [">", "<"], "==": ["!="], "!=": ["=="]}
ARITHMETIC = {"+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["*"]}
LOGICAL = {"&&": ["||"], "||": ["&&"]}
ASSIGNMENT = {"+=": ["-="], "-=": ["+="]}
ENUMERATORS = {
    "PenaltyKind::kWganLp": "PenaltyKind::kWganGp",
    "LossWeighting::kReplicas": "LossWeighting::kSamples",
    "LossWeighting::kSamples": "LossWeighting::kReplicas",
    "c10d::ReduceOp::MAX": "c10d::ReduceOp::MIN",
    "c10d::BuiltinCommHookType::FP16_COMPRESS": "c10d::BuiltinCommHookType::ALLREDUCE",
    "at::kLong": "at::kInt",
    "at::kInt": "at::kLong",
    "at::kDouble": "at::kFloat",
}
# Expressions are not mutated in here: types, constants of the compiler, and texts for people.
CLOSED = {
    "template_argument_list", "template_parameter_list", "parameter_list", "type_descriptor", "static_assert_declaration",
    "using_declaration", "alias_declaration", "decltype", "lambda_capture_specifier", "preproc_include", "preproc_def",
    "enumerator_list", "attribute_declaration", "throw_statement", "string_literal", "requires_clause",
}
MESSAGES = {"TORCH_WARN", "TORCH_CHECK", "c10::str", "std::to_string"}
# What no program can tell: room that is made beforehand, and which of two comes first where that is all the same.
SILENT = r"^TORCH_WARN|^[\w.>-]+\.reserve\("
CONVERSIONS = ("std::move", "static_cast")  # Left out, the compiler makes them.
SYMMETRIC = {"std::min", "std::max", "std::swap", "at::equal"}
OPERANDS = {"identifier", "field_expression", "call_expression", "subscript_expression"}


def mutants_of(source):
    found = []

    def add(operator, node, form, text):
        before = source.text(node) if form != "entry" else "{"
        if text.strip() == before.strip():
            return
        short = re.sub(r"\s+", " ", before)
        after = re.sub(r"\s+", " ", text) or "(nothing)"
        edit = Edit(node.start_byte, node.end_byte, form, text)
        found.append(Mutant(source.file, node.start_point[0] + 1, operator, short, after, [edit]))

    def visit(node):
        if node.type in CLOSED or is_constant(source, node):
            return
        for operator in (binary, constant, condition, statement, call, bound, enumerator, entry, detached):
            operator(source, node, add)
        children = node.children
        if node.type == "call_expression" and source.text(node.child_by_field_name("function")) in MESSAGES:
            arguments = node.child_by_field_name("arguments").named_children
            checked = source.text(node.child_by_field_name("function")) == "TORCH_CHECK"
            children = arguments[:1] if checked else []
        for child in children:
            visit(child)

    visit(source.tree.root_node)
    unique = {}
    for mutant in found:
        edit = mutant.edits[0]
        unique.setdefault((edit.start, edit.end, edit.form, mutant.after), mutant)
    alike = collections.Counter()
    for mutant in unique.values():
        alike[mutant.identity()] += 1
        mutant.occurrence = alike[mutant.identity()]
    return list(unique.values())


def is_constant(source, node):
    return node.type in ("declaration", "field_declaration") and any(
        child.type in ("type_qualifier", "storage_class_specifier")
        and source.text(child) in ("constexpr", "thread_local")
        for child in node.children
    )


def binary(source, node, add):
    if node.type in ("binary_expression", "assignment_expression"):
        left, sign, right = (node.child_by_field_name(name) for name in ("left", "operator", "right"))
        kinds = [("relational", RELATIONAL), ("arithmetic", ARITHMETIC), ("logical", LOGICAL)]
        if node.type == "assignment_expression":
            kinds = [("arithmetic", ASSIGNMENT)]
        for name, table in kinds:
            for other in table.get(source.text(sign), []):
                add(name, node, "expression", f"{source.text(left)} {other} {source.text(right)}")
    if node.type == "unary_expression" and source.text(node.child_by_field_name("operator")) in "!-":
        argument = source.text(node.child_by_field_name("argument"))
        # Without the bool both would be what the argument is, and an optional of false is true.
        positive = f"static_cast<bool>({argument})" if source.text(node).startswith("!") else argument
        add("logical", node, "expression", positive)


def constant(source, node, add):
    text = source.text(node)
    if node.type == "number_literal":
        if re.fullmatch(r"\d+", text):
            add("constant", node, "expression", str(int(text) + 1))
        elif re.fullmatch(r"\d+\.\d*", text):
            add("constant", node, "expression", str(float(text) * 2 + (text.strip("0.") == "")))
    elif node.type in ("true", "false"):
        add("constant", node, "expression", "false" if text == "true" else "true")


def condition(source, node, add):
    tested = None
    if node.type in ("if_statement", "while_statement"):
        clause = node.child_by_field_name("condition")
        tested = clause.child_by_field_name("value") if clause is not None else None
        if tested is not None and tested.type == "declaration":
            tested = None
    elif node.type in ("conditional_expression", "for_statement"):
        tested = node.child_by_field_name("condition")
    elif node.type == "call_expression" and source.text(node.child_by_field_name("function")) == "TORCH_CHECK":
        tested = (node.child_by_field_name("arguments").named_children or [None])[0]
    if tested is None or tested.type in ("true", "false"):
        return
    if node.type not in ("while_statement", "for_statement"):
        add("condition", tested, "expression", f"!({source.text(tested)})")
        add("condition", tested, "expression", "true")
    add("condition", tested, "expression", "false")


def statement(source, node, add):
    if node.type == "expression_statement" and node.named_child_count and node.parent.type != "for_statement":
        first = node.named_children[0]
        if first.type != "call_expression" or not re.search(SILENT, source.text(first)):
            add("deleted statement", node, "statement", "")
    if node.type in ("continue_statement", "break_statement"):
        add("deleted statement", node, "statement", "")


def call(source, node, add):
    if node.type != "call_expression":
        return
    function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if function is None or arguments is None or source.text(function) in MESSAGES or re.search(SILENT, source.text(node)):
        return
    given = [child for child in arguments.named_children if child.type != "comment"]
    texts = [source.text(child) for child in given]
    if function.type == "field_expression":
        method = source.text(function.child_by_field_name("field"))
        operator = "detach" if method == "detach" else "removed call"
        add(operator, node, "expression", source.text(function.child_by_field_name("argument")))
    elif texts and not source.text(function).startswith(CONVERSIONS):
        add("removed call", node, "expression", texts[0])
    for i in range(len(texts) - 1 if source.text(function) not in SYMMETRIC else 0):
        if texts[i] == texts[i + 1]:
            continue
        swapped = texts[:i] + [texts[i + 1], texts[i]] + texts[i + 2 :]
        add("swapped arguments", node, "expression", f"{source.text(function)}({', '.join(swapped)})")


def bound(source, node, add):
    if node.type == "for_statement":
        test = node.child_by_field_name("condition")
        if test is not None and test.type == "binary_expression":
            right = source.text(test.child_by_field_name("right"))
            add("bound", test.child_by_field_name("right"), "expression", f"{right} - 1")
        start = node.child_by_field_name("initializer")
        declarator = start.child_by_field_name("declarator") if start is not None else None
        value = declarator.child_by_field_name("value") if declarator is not None else None
        if value is not None:
            add("bound", value, "expression", f"{source.text(value)} + 1")
    if node.type == "call_expression":
        text = source.text(node)
        if re.search(r"(\.begin\(\))$", text):
            add("bound", node, "expression", f"{text} + 1")
        if re.search(r"(\.end\(\))$", text):
            add("bound", node, "expression", f"{text} - 1")
        if re.search(r"\.front\(\)$", text):
            add("bound", node, "expression", text[: -len("front()")] + "back()")
        if re.search(r"\.back\(\)$", text):
            add("bound", node, "expression", text[: -len("back()")] + "front()")
    if node.type == "subscript_expression":
        index = node.child_by_field_name("indices")
        if index is not None and index.named_child_count == 1 and index.named_children[0].type == "identifier":
            value = source.text(index.named_children[0])
            add("bound", index.named_children[0], "expression", f"{value} == 0 ? {value} : {value} - 1")


def enumerator(source, node, add):
    other = ENUMERATORS.get(source.text(node)) if node.type == "qualified_identifier" else None
    if other is not None:
        add("enumerator", node, "expression", other)


def entry(source, node, add):
    if node.type != "function_definition":
        return
    body = node.child_by_field_name("body")
    if body is not None and body.named_child_count:
        add("early return", body, "entry", "return {};")
        add("early return", body, "entry", "return;")


def detached(source, node, add):
    if node.type not in OPERANDS or node.parent is None:
        return
    parent = node.parent
    used = parent.type in ("return_statement", "argument_list", "binary_expression")
    used = used or node in (parent.child_by_field_name("right"), parent.child_by_field_name("value"))
    if used and not source.text(node).endswith(".detach()"):
        add("detach", node, "expression", f"{source.text(node)}.detach()")
