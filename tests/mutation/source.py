"""A source file as tree-sitter sees it, and its text with mutants built in (mutant schemata).

Every mutant is a choice at run time: an expression E with the mutants M1, M2 becomes
(chosen(1) ? (M1) : (chosen(2) ? (M2) : (E))), a statement an if with an else. All mutants of a file are so in one
object. Each alternative stands on lines of its own, so that the compiler's errors say which mutants do not compile.
"""

import dataclasses
import re

import tree_sitter
import tree_sitter_cpp

PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))
CHOSEN = "::lockstep::mutation::chosen"
LIKE = "::lockstep::mutation::Like"


@dataclasses.dataclass
class Edit:
    """One place of one mutant. form: expression, statement (an empty text deletes it) or entry (of a block)."""

    start: int
    end: int
    form: str
    text: str


@dataclasses.dataclass
class Mutant:
    file: str  # Relative to the root.
    line: int
    operator: str
    before: str
    after: str
    edits: list
    number: int = -1
    name: str = ""  # Of those written by hand.
    occurrence: int = 1  # Of the same edit of the same text in the file.

    def key(self):
        return f"{self.file}:{self.line} {self.operator} `{self.before}` -> `{self.after}`"

    def identity(self):
        """Wherever in the file it stands."""
        return f"{self.file} {self.operator} `{self.before}` -> `{self.after}` {self.occurrence}"


class Source:
    def __init__(self, root, file):
        self.file = file
        self.bytes = (root / file).read_bytes()
        self.tree = PARSER.parse(self.bytes)

    def text(self, node):
        return self.bytes[node.start_byte : node.end_byte].decode()

    def nodes(self):
        open_nodes = [self.tree.root_node]
        while open_nodes:
            node = open_nodes.pop()
            yield node
            open_nodes.extend(reversed(node.children))

    def with_mutants(self, mutants):
        """The text with these mutants in it; a mutated place is known by its bytes and form."""
        places = {}
        for mutant in mutants:
            for edit in mutant.edits:
                places.setdefault((edit.start, edit.end, edit.form), []).append((mutant.number, edit.text))
        return '#line 1 "%s"\n' % self.file + self._rendered(self.tree.root_node, places)

    def _rendered(self, node, places):
        parts, at = [], node.start_byte
        for child in node.children:
            parts.append(self.bytes[at : child.start_byte].decode())
            parts.append(self._rendered(child, places))
            at = child.end_byte
        parts.append(self.bytes[at : node.end_byte].decode())
        text = "".join(parts)
        place = (node.start_byte, node.end_byte)
        if node.type == "compound_statement":
            for number, new in places.pop((*place, "entry"), []):
                text = "{\n" + marked(number, f"if ({CHOSEN}({number})) {new}") + text[1:]
        # The outermost node of these bytes: its parent begins or ends elsewhere.
        parent = node.parent
        if parent is not None and (parent.start_byte, parent.end_byte) == place:
            return text
        for number, new in places.pop((*place, "expression"), []):
            like = f"{LIKE}<decltype(({self.text(node)})), decltype(({new}))>"
            text = "(" + marked(number, f"{CHOSEN}({number}) ? static_cast<{like}>({new}) :") + f"({text}))"
        for number, new in places.pop((*place, "statement"), []):
            text = "{" + marked(number, f"if ({CHOSEN}({number})) {{ {new} }} else") + "{ " + text + " } }"
        return text


def marked(number, text):
    # The compiler then names the mutant instead of a file.
    one_line = re.sub(r"\s*\n\s*", " ", text)
    return f'\n#line {number + 1} "mutant"\n{one_line}\n#line 1 "after {number}"\n'


def of_bytes(source, old, form):
    """The one node that reads `old`; for mutants by hand."""
    wanted = re.sub(r"\s+", " ", old).strip()
    found = {
        (node.start_byte, node.end_byte): node
        for node in source.nodes()
        if re.sub(r"\s+", " ", source.text(node)) == wanted
    }
    if len(found) != 1:
        raise SystemExit(f"{source.file}: {len(found)} places read `{wanted}`, need one")
    (start, end), node = next(iter(found.items()))
    if form == "entry":
        raise SystemExit("an entry is a place in a function: give its first statement instead")
    return node, start, end
