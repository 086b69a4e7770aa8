"""Every error code of the project: what it means, an example, and how to mend it. `adapterc explain CODE` prints an entry.

Add a code with one `_entry(…)` in the list of its hundred: 1xx reading a spec, 2xx its language, 3xx verdicts, 4xx building and applying patches,
5xx and 6xx running models, 9xx the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Code:
    """One error code. `text` explains, `example` shows what gives it, `mend` says what to do."""

    code: str
    title: str
    text: str
    example: str
    mend: str


def _entry(code: str, title: str, text: str, example: str, mend: str) -> Code:
    return Code(code, title, text, example, mend)


_READING = (
    _entry("ADC101", "No such file", "The path names nothing.", "adapterc check specs/gelu.yml", "Check the spelling and the ending; a folder stands for its *.yaml files."),
    _entry("ADC102", "Not readable", "The path names a folder, a device or a file without permission to read.", "adapterc check /dev/stdin", "Name a regular file that you may read."),
    _entry("ADC103", "Too large", "Specs are a few kilobytes; anything beyond 256 KiB is refused by its size, before it is read.", "a 100 MB file", "Check that it is the right file; one file holds one adapter."),
    _entry("ADC104", "Not text", "The file holds bytes that are not UTF-8, or control characters.", "a zip file called adapter.yaml", "Save it as UTF-8 text."),
    _entry("ADC105", "Not YAML", "The YAML reader stopped at this place. In plain text `: ` starts a value, `#` a comment, and tabs may not indent.", "reason: pow: does not lower", "Quote the text, or mend the indentation."),
    _entry("ADC106", "Empty", "The file holds no value, perhaps only comments.", "# to do", "Start with `adapter: name`; docs/spec-reference.md shows a whole spec."),
    _entry("ADC107", "Key twice", "A mapping has the same key twice, and YAML would silently keep the last.", "match: x\nmatch: y", "Remove one, or start a new rule with `- `."),
    _entry("ADC108", "Too deep, or too many values", "Nesting is bounded, and so is what a file becomes once its aliases are followed.", "a: &a [*b, *b], b: &b [*c, *c] …", "Write the values out."),
    _entry("ADC109", "YAML feature without meaning here", "Tags, several documents and aliases without an anchor are not part of a spec.", "adapter: !!python/name:os.system", "Remove the tag; one file holds one document."),
    _entry("ADC110", "Unknown key", "The schema has no such key at this place.", "substitue: x * x", "Take the suggested key; docs/spec-reference.md lists all."),
    _entry("ADC111", "Missing key", "A key that the rule kind needs is absent.", "- rewrite: cube  (without `reason:`)", "Add it."),
    _entry("ADC112", "Wrong value", "The value has the wrong type, is none of the allowed words, or is empty.", "lifetime: forever", "Write what the message asks for."),
    _entry("ADC113", "Unknown rule kind", "A rule starts with its kind and name. There are rewrite, weights, replace, pad, place, boundary and require.", "- rewrit: cube", "Correct the kind; one rule has one kind."),
    _entry("ADC114", "Name taken", "Two adapters, or two rules of one adapter, have one name.", "- rewrite: cube … - rewrite: cube", "Rename one: verdicts and counts go by name."),
    _entry("ADC115", "No spec in the folder", "A folder stands for its *.yaml files, and it has none.", "adapterc check docs/", "Name a spec, or another folder."),
    _entry("ADC116", "Value cut at a comma", "Inside {…} YAML separates entries at commas, so that an unquoted expression ends at its first one.", "program: {wt: transpose(w, 0, 1)}", 'Quote it: {wt: "transpose(w, 0, 1)"}, or put each entry on its own line.'),
)  # fmt: skip

_LANGUAGE = (
    _entry("ADC201", "Syntax", "The expression cannot be read at the caret. The language has Python's operators, calls of ops, subscripts, lists and `a if c else b`; no method calls.", "x.sum(-1)", "Write the op as a function: sum(x, -1)."),
    _entry("ADC202", "Number out of range", "A number has more digits, or a larger exponent, than any format holds.", "1e999", "Write `inf` for infinity; round what is longer."),
    _entry("ADC203", "Too long or too deep", "Expressions are bounded in length and nesting, so that no spec can exhaust the reader.", "((((…))))", "Name the parts with `let:`."),
    _entry("ADC204", "Type", "A type is an element kind and a shape, or `scalar` or `size`.", "x: float", "Write float[...], int[b, n], weight float[V, H], float16[*B, d]."),
    _entry("ADC210", "Unknown op", "No op of the language has this name.", "soft_max(x, -1)", "Take the suggestion; docs/spec-reference.md lists the ops."),
    _entry("ADC211", "Arguments", "An op gets too many arguments, one twice, or lacks one.", "softmax(x)", "The message shows the op's signature."),
    _entry("ADC212", "Unknown argument", "The op has no argument of this name.", "softmax(x, axis=-1)", "Take the name from the signature: softmax(x, dim=-1)."),
    _entry("ADC213", "Arguments without a meaning", "The arguments are well formed, but the op is not defined for them.", 'einsum("ii->i", [x])', "See the op in docs/spec-reference.md."),
    _entry("ADC220", "Free name", "The name is no variable of the pattern, no size of its types, no binding and no name of the language.", "match: pow(x, 3)  substitute: y * y * y", "Bind it in `match`, `let:`, `constants:` or `program:`."),
    _entry("ADC221", "Variable not in the pattern", "`where:` gives a type to a name that `match` does not have.", "match: relu(x)  where: {x: …, y: …}", "Remove it, or use it in `match`."),
    _entry("ADC222", "Name taken", "A name is used for two things: a variable and a size, a binding and a variable, or a name of the language.", 'where: {d: "float[..., d]"}', "Rename one."),
    _entry("ADC223", "Variable without a type", "What is proved about a rule rests on the types of its variables.", "match: a + b  where: {a: …}", 'Add it to `where:`, as in b: "float[...]".'),
    _entry("ADC224", "Without effect (warning)", "A variable or binding plays no part in the result. That may be meant, and is often a slip.", "match: x + y  substitute: x", "Remove it, or use it."),
    _entry("ADC225", "Not known yet", "Constants are built when the patch is applied, weight programs run at load: neither sees the tensors of a run.", "constants: {m: amax(x)}", "Move it to `let:`, or declare the variable as `weight`."),
    _entry("ADC226", "Condition on values (warning)", "`when:` is decided on a graph, before any tensor has values. A rule under such a condition can be checked, and shows what would have to hold; it cannot be built.", "when: x > 0", "Use sizes, `scalar` variables, config and profile, or a pattern that implies the condition, as exp(y) does y > 0."),
    _entry("ADC227", "No such dimension to pad", "`dim:` names a size of `where`, and fills name tensors that have it.", "dim: D  where: {q: float[..., d]}", "Use a size name as in the types."),
    _entry("ADC228", "Rule without an end", "The pattern matches everything, or the substitute is the match, so that the rule would fire for ever.", "match: x", "Match an op, and change it."),
    _entry("ADC230", "Kind", "An argument is of another kind than the op takes: a number for a tensor, a float where indices belong.", "take(w, x)  where: {x: float[n]}", "Cast it, or mend the types in `where`."),
    _entry("ADC231", "Shape", "The operands have shapes that do not fit for all sizes: they do not broadcast, contract or join.", 'x @ y  where: {x: "float[m, k]", y: "float[n, k]"}', "Transpose one, or use one name for equal sizes."),
    _entry("ADC232", "Dimension or index", "A dimension or index is outside the tensor, or listed twice.", 'sum(x, 2)  where: {x: "float[m, n]"}', "Count dimensions from 0, or from -1 at the end."),
    _entry("ADC233", "Sides of different shape", "A substitute must have the shape of what it replaces, for all sizes that the types admit.", "match: mean(x, -1)  substitute: mean(x, -1, keepdim=true)", "Reshape the substitute, or name the sizes alike."),
    _entry("ADC234", "Sides of different number format", "A substitute must have the number format of what it replaces.", "match: softmax(x, -1)  substitute: softmax(to(x, float32), -1)", "Cast it back with `to`."),
    _entry("ADC240", "Division by zero", "A size divides by zero for these numbers.", "n / (d - d)", "Guard the rule with `when:`."),
    _entry("ADC241", "Beyond the span", "One core addresses 256 MiB; a dimension of more elements than bytes in it cannot be.", "size: V ** 9", "Check the factors."),
    _entry("ADC242", "Not a size", "The value is no whole number from 0.", "d / 3 with d = 64", "Round it with ceil_div, ceil_to or //."),
    _entry("ADC243", "No value", "A name or op has no value in a size or condition.", "ceil_to(d, stik)", "Use the names that the message lists."),
    _entry("ADC244", "Not true or false", "A condition needs a truth value.", "when: config.n_layer", "Compare it: config.n_layer > 0."),
    _entry("ADC245", "Not a number", "Arithmetic meets text, a list, or None from a field that this config lacks.", "config.head_dim * 2 without head_dim", "Test for None first: config.head_dim != None and …"),
)  # fmt: skip

_VERDICTS = (
    _entry("ADC301", "Wrong", "A counterexample shows inputs for which the sides differ beyond rounding. Such a rule is never built.", "match: x / y  substitute: y / x", "Look at the table of values; take the mend that is named."),
    _entry("ADC302", "Right only under a guard", "The sides agree where a condition holds, and the rule does not state it.", "match: exp(log(x))  substitute: x", "Paste the printed `when:` into the rule."),
    _entry("ADC303", "Differs at edges", "The sides agree on ordinary values and differ at NaN, infinities, overflow, ties or empty rows.", "match: x * 0  substitute: full_like(x, 0)", "Name each edge under `accepts:` with the reason why it does no harm."),
    _entry("ADC304", "Approximate", "The sides differ by more than rounding, within a bound.", "erf replaced by tanh in gelu", "State a `budget:` that covers it, or make it exact."),
    _entry("ADC305", "Class not allowed", "The verdict's class is not among those of `allow:`.", "allow: [EXACT] on a reassociation", "Add the class to `allow:`, or mend the rule."),
    _entry("ADC306", "Undecided", "No rung of the ladder could decide the rule.", "a rule over an op that no rung models", "Install the extra `prove`, or split the rule."),
    _entry("ADC307", "Weaker than claimed", "The rule's `claim:` promises more than was found.", "claim: EXACT on x / 3 → x * (1 / 3)", "Lower the claim, or mend the rule."),
    _entry("ADC308", "Stronger than claimed (warning)", "The rule is better than its `claim:` says.", "claim: REAL on a bitwise rule", "Raise the claim."),
    _entry("ADC309", "Worse than stock", "The rule's budget is `no worse than stock`, and its error against exact arithmetic is larger than the match's in the formats named, as measured.", "budget: no worse than stock on pow(x, 3) → x * x * x", "Compute it in float32, or drop the budget."),
    _entry("ADC310", "Unknown gap", "`gap:` names what the backend does not lower, by an id of its profiles; an adapter goes when its gap is closed.", "gap: pow", "Take an id from spyre_runtime/profiles, or add the gap there with its source."),
)  # fmt: skip

_PATCHES = (
    _entry("ADC401", "Folder not writable", "The patches could not be written: no permission, a full disk, or a folder that holds something else.", "adapterc build -o /", "Choose an empty folder, or one that an earlier build wrote."),
    _entry("ADC402", "Verdict missing or too weak", "Only rules whose verdict allows it are built.", "building a REFUTED rule", "Run `adapterc check` and mend what it reports."),
    _entry("ADC403", "No Python form", "The rule is well formed, but codegen cannot write it.", "a pattern over a whole module", "Write it with ops that have a torch form; docs/spec-reference.md shows them."),
    _entry("ADC407", "Certificates not written", "The folder for certificates cannot be written.", "adapterc check --certificates /proc", "Name another folder."),
    _entry("ADC410", "Fired too seldom or too often", "A rule's count on a model is not what `expect:` says.", "expect: [{fires: 12}] on 6 layers", "See `adapterc why RULE MODEL`; then mend the pattern or the count."),
    _entry("ADC411", "Rules that fight", "One rule undoes what another did, and an earlier graph came back.", "a → b and b → a", "Guard one of them with `when:`."),
    _entry("ADC412", "Rewriting does not end", "Rules kept firing beyond the bound.", "x → x + 0", "Make the substitute one that the pattern does not match."),
    _entry("ADC413", "Model refused", "A `require` of the adapter does not hold for this config.", "rope_type: longrope", "Read its sentence: the adapter says what it needs."),
    _entry("ADC414", "Substitute of another shape", "On this model the substitute's value has another shape or dtype than what it replaces.", "a rule whose types were too loose", "Tighten the types in `where:`."),
    _entry("ADC415", "Installed already", "The patch set is already on this model.", "install(model) twice", "Remove the first with handle.remove()."),
)  # fmt: skip

_RUNNING = (
    _entry("ADC501", "No such model", "The path names no model folder.", "adapterc run ./missing", "Give a folder with a config.json, or a config: spec."),
    _entry("ADC502", "Bad config: spec", "A `config:` spec names a class and fields with values.", "config:BertModel,layers=2", "Use the class's own field names."),
    _entry("ADC503", "Transformers cannot load it", "The library refused the model or its config.", "a folder without weights", "Load it with AutoModel.from_pretrained first."),
    _entry("ADC504", "Bad inputs", "Texts need a tokenizer, ids must be inside the vocabulary, and only one of both is given.", "--ids 1,x", "Write --ids 1,2,3 or --text."),
    _entry("ADC505", "No patches in the folder", "The folder is not what `adapterc build` writes.", "adapterc run M --patches docs/", "Build them with `adapterc build -o FOLDER`."),
    _entry("ADC506", "Check failed", "Some rules may not be built, so nothing was run.", "a REFUTED rule among the specs", "See `adapterc check`."),
    _entry("ADC507", "Unknown number format of a run", "A run computes in the device's format or in fp32.", "--dtype int4", "Choose device or fp32."),
    _entry("ADC508", "Unknown profile", "No backend profile has this name.", "--profile latest", "Choose one that the message lists."),
    _entry("ADC509", "Not loaded by adapterc", "Only a model that `adapterc.load` prepared can be unloaded.", "unload(model) twice", "Nothing has to be taken off."),
    _entry("ADC510", "No plan", "The file is not what `adapterc run --plan` writes, is too large, or names what a plan may not run.", "adapterc run plan:notes.json", "Write the plan again with `adapterc run MODEL --plan FILE.json`."),
    _entry("ADC511", "The device is not here", "The real device needs torch_spyre; where that is installed, the simulator stands aside.", "adapterc run M --device real", "Install torch_spyre, or leave the option out."),
    _entry("ADC512", "File not written", "A report, trace or plan cannot be written to this path; what was there before still is.", "--report /proc/run.html", "Name a file in a folder that exists and can be written."),
    _entry("ADC514", "No such stage", "The compiler has no stage of this name.", "adapterc run M --dump link", "Choose one that the message lists."),
    _entry("ADC601", "Module cannot be traced", "The forward of the module cannot be captured as a graph.", "data-dependent control flow", "Run it on CPU with the same inputs first."),
    _entry("ADC602", "No model named", "The command needs a model folder or a config: spec.", "adapterc gaps", "Name a model, or use --all for the population."),
    _entry("ADC603", "Unknown form of a report", "Gaps are shown as a table or as reports for the compiler's tracker.", "adapterc gaps M --as csv", "Choose table or issue; --json serves programs."),
    _entry("ADC604", "No such rule", "The specs have no rule of this name. A rule is named `adapter.rule`.", "adapterc why gelu_new.cubes M", "Take the suggestion, or see `adapterc list`."),
    _entry("ADC605", "Nothing to draft", "No gap of the model, and no topic that draft knows, has this name.", "adapterc draft G99 --model M", "Take an id that `adapterc gaps` printed for the same model, or a topic that the message lists."),
    _entry("ADC606", "Nothing found to substitute", "None of the known good forms was both proved equal and accepted by the compiler.", "adapterc draft on an op without a real-number meaning", "Write the substitute by hand; the message lists what was tried and why it fell."),
    _entry("ADC607", "Cannot be diagnosed", "The graph cannot be run on the device at all, so there is no wrong number to explain.", "adapterc diagnose on a model that is refused", "Mend what `adapterc gaps` lists first."),
    _entry("ADC608", "Unknown fault", "The profile lists no fault of this name.", "--fault exp-flor", "Take the suggestion, or see the profile's `faults`."),
    _entry("ADC609", "Optional package missing", "The command needs a package that a plain installation does not have.", "adapterc mcp without the extra", "Install it: pip install 'adapterc[mcp]'."),
    _entry("ADC611", "List of models cannot be read", "A population is a CSV with a header and the columns model_id, model_type and architectures.", "adapterc sweep --population notes.txt", "Mend the line that the message names."),
    _entry("ADC612", "Unknown choice of a sweep", "An option of `adapterc sweep` has a value that it does not know.", "--engine slurm", "Take one that the message lists."),
    _entry("ADC613", "Too large for a worker", "The instance at real widths needs more memory than a row may take; the row is reported as not run.", "a model of 100 billion parameters on 24 GiB", "Raise --memory, or use a larger machine."),
    _entry("ADC614", "Store not usable", "The file is no store of a sweep, or of a sweep over another list, with other adapters or another profile.", "--store of last month's adapters", "Name another --store, or delete the file."),
)  # fmt: skip

_COMMANDS = (
    _entry("ADC901", "No spec found", "The folder holds no *.yaml.", "adapterc check docs/", "Name a spec file."),
    _entry("ADC902", "Interrupted", "The command was stopped.", "Ctrl-C", "Run it again."),
    _entry("ADC903", "Nothing to explain", "There is no such code, rule or setting.", "adapterc explain ADC999", "Use a code from a message, a rule's name, or a size."),
    _entry("ADC904", "A library is missing", "The option needs a library that is not installed.", "adapterc check --pytest", "Install what the message names."),
)  # fmt: skip

CODES: Mapping[str, Code] = MappingProxyType(
    {entry.code: entry for entry in (*_READING, *_LANGUAGE, *_VERDICTS, *_PATCHES, *_RUNNING, *_COMMANDS)}
)


def explain(code: str) -> str:
    """The long text of a code. Raises KeyError for one that is not in the table."""
    entry = CODES[code]
    example = "\n".join(f"    {line}" for line in entry.example.split("\n"))
    return f"{entry.code}: {entry.title}\n\n{entry.text}\n\nFor example:\n{example}\n\nMend: {entry.mend}\n"
