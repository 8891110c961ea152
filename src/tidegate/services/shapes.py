"""The schema at every place of a pipeline, and what does not fit there.

Constraints and terms of an input stay with the attributes that pass unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.errors import (
    DefinitionError,
    FilterError,
    LanguageError,
    SchemaError,
    TidegateError,
    did_you_mean,
)
from tidegate.filters import Constraints
from tidegate.filters import Filter as FilterText
from tidegate.filters import membership as memberships
from tidegate.filters.nodes import Literal
from tidegate.filters.parser import parse_shape
from tidegate.model import Field, Schema, Struct
from tidegate.model.types import Array, Scalar, Type
from tidegate.services import expressions, tables
from tidegate.services.definitions import NONE, Mask, Path, Place, Service
from tidegate.services.findings import Findings, Spot
from tidegate.services.operators import (
    Aggregate,
    Aggregation,
    Computed,
    CountWindow,
    Custom,
    Deduplicate,
    Enrich,
    Filter,
    Incremental,
    Join,
    Merge,
    Operator,
    Project,
    Sort,
    TimeWindow,
)

_TIME = Scalar("timestamp")
_WINDOW = (Field("window_start", _TIME), Field("window_end", _TIME))
WORDS: dict[type[Operator], str] = {
    Filter: "filter",
    Project: "project",
    Sort: "sort",
    Aggregate: "aggregate",
    Incremental: "incremental",
    Merge: "merge",
    Join: "join",
    Deduplicate: "deduplicate",
    Enrich: "enrich",
    Custom: "custom",
}
"""What each operator is called in a service file."""


@dataclass(frozen=True)
class Shape:
    """The schemas along a service's pipeline."""

    steps: tuple[Schema, ...]
    """After each operator, of the same number."""
    unmasked: Schema
    """After the pipeline, with the service's constraints and terms: what constraints are checked on."""
    output: Schema
    """What subscribers see: masked, and with the constraints that surely hold of it. None of those on masked
    attributes, and none at all where violations are only flagged."""


def output_schema(service: Service, inputs: Mapping[str, Schema]) -> Schema:
    """Give the schema of what a service puts out; `inputs` are the schemas of what it reads, by name."""
    return shape(service, inputs).output


def shape(service: Service, inputs: Mapping[str, Schema], places: Mapping[Path, Place] = NONE) -> Shape:
    """Give the schemas along a pipeline, or raise a `DefinitionError` with what does not fit."""
    findings = Findings(places)
    found = shape_into(service, inputs, findings)
    if found is None or findings.problems:
        raise DefinitionError(findings.problems)
    return found


def schema_after(operator: Operator, *schemas: Schema, right: str = "right") -> Schema:
    """Give the schema after one operator; `right` is the name of a join's second input."""
    findings = Findings()
    names = ("left", right) if isinstance(operator, Join) else tuple(f"input {n}" for n in range(len(schemas)))
    found = _after(operator, list(zip(names, schemas, strict=True)), Spot(None, (WORDS[type(operator)],), findings))
    if found is None or findings.problems:
        raise DefinitionError(findings.problems)
    return found


def joined_name(right: str, attribute: str) -> str:
    """Name an attribute of a join's right input that the left has too.

    >>> joined_name("gps-b", "time")
    'gps_b_time'
    """
    return f"{''.join(letter if letter.isalnum() else '_' for letter in right)}_{attribute}"


Inputs = Sequence[tuple[str, Schema]]
"""Names and schemas, in the order of the service."""


def shape_into(service: Service, inputs: Mapping[str, Schema], findings: Findings) -> Shape | None:
    """Give the schemas along a pipeline; problems go to `findings`, None: it could not be followed to its end."""
    root = Spot(None, ("services", service.name), findings)
    unknown = [name for name in service.inputs if name not in inputs]
    for name in unknown:
        root.at("from", None).blame(f"unknown stream or service {name!r}{did_you_mean(name, inputs)}")
    if unknown or not service.inputs:
        if not service.inputs:
            root.at("from", None).blame("expected at least one stream or service")
        return None
    current: Inputs = [(name, inputs[name]) for name in service.inputs]
    fits = _note_structure(service, root)
    steps: list[Schema] = []
    for n, operator in enumerate(service.pipeline):
        after = _after(operator, current, root.at("pipeline", None).at(n, None).at(WORDS[type(operator)], None))
        if after is None or not fits:
            return None
        steps.append(after)
        current = [(service.name, after)]
    if not fits:
        return None
    unmasked = _promised(service, current[0][1], root)
    output = _masked(service, unmasked, root)
    return Shape(tuple(steps), unmasked, output)


def _note_structure(service: Service, root: Spot) -> bool:
    """Note operators that are out of place; say whether the pipeline can be followed."""
    several, pipeline = len(service.inputs) > 1, service.pipeline
    joins = [n for n, each in enumerate(pipeline) if isinstance(each, Merge | Join)]
    fits = True
    for n in joins:
        spot, word = root.at("pipeline", None).at(n, None), WORDS[type(pipeline[n])]
        if n > 0:
            spot.blame(f"expected {word} as the first operator: what comes before it has one stream already")
            fits = False
        elif isinstance(pipeline[n], Join) and len(service.inputs) != 2:
            spot.blame(f"a join has two inputs, left and right; from names {len(service.inputs)}")
            fits = False
    if several and (not pipeline or not isinstance(pipeline[0], Merge | Join)):
        root.at("pipeline", None).blame(f"expected merge or join first, as there are {len(service.inputs)} inputs")
        fits = False
    if fits and pipeline and isinstance(pipeline[0], Merge):
        for name in sorted({name for name in service.inputs if service.inputs.count(name) > 1}):
            root.at("from", None).blame(f"expected {name!r} once: merged with itself each event comes twice")
    return fits


def _after(operator: Operator, inputs: Inputs, spot: Spot) -> Schema | None:
    """Give the schema after an operator; None where it can't be known."""
    schema = inputs[0][1]
    before = len(spot.findings.problems)
    match operator:
        case Filter():
            _note_filter(operator, schema, spot)
            return schema
        case Project():
            found = _project(operator, schema, spot)
        case Sort():
            found = _sort(operator, schema, spot)
        case Aggregate() | Incremental():
            found = _aggregate(operator, schema, spot)
        case Merge():
            found = _merge(inputs, spot)
        case Join():
            found = _join(operator, inputs, spot)
        case Deduplicate():
            _groupable(operator.by, schema, spot, "by")
            _need_time(schema, spot, "to tell how far apart two events are")
            found = schema
        case Enrich():
            found = _enrich(operator, schema, spot)
        case Custom():
            found = _custom(operator, schema, spot)
    return found if len(spot.findings.problems) == before else None


# Operators -------------------------------------------------------------------


def _note_filter(operator: Filter, schema: Schema, spot: Spot) -> None:
    try:
        made = FilterText(operator.text, schema, operator.params, strict_params=True)
    except LanguageError as error:
        _blame_text(error, spot)
        return
    if made.tree.is_semantic:
        spot.blame("a pipeline does not compare by meaning (~): subscribe with it to what the pipeline puts out")


def _blame_text(error: LanguageError, spot: Spot) -> None:
    """Note every problem of a text, on one line each."""
    for problem in error.problems:
        spot.blame(f"{problem.message}: in {error.text!r} at {problem.at + 1}")


def _project(operator: Project, schema: Schema, spot: Spot) -> Schema | None:
    before = len(spot.findings.problems)
    if not operator.attributes:
        spot.blame("expected at least one attribute")
    fields = {field.name: field for field in schema.root} if operator.keep else {}
    same = set(fields)
    renamed: dict[str, str] = {}
    for name, computed in operator.attributes.items():
        found = _computed(name, computed, schema, spot.at("select", None) if operator.keep else spot)
        if found is None:
            continue
        fields[name] = Field(name, found.type, found.required)
        plain = found.attribute if computed.default is None else None
        same.discard(name)
        if plain == name:
            same.add(name)
        elif plain is not None:
            renamed.setdefault(plain, name)
    if len(spot.findings.problems) > before:
        return None
    time = _followed_time(schema, fields, renamed)
    return _made(spot, fields.values(), time, [(schema, same)], renamed)


def _followed_time(schema: Schema, fields: Mapping[str, Field], renamed: Mapping[str, str]) -> str | None:
    """Find the event time after a projection: under its own name, else under the first it was given."""
    for name in (schema.event_time, renamed.get(schema.event_time or "")):
        if name is not None and name in fields and fields[name].type == _TIME:
            return name
    return None


def _computed(name: str, computed: Computed, schema: Schema, spot: Spot) -> expressions.Expression | None:
    where = spot.at(name, None)
    if name.startswith("_"):
        where.blame("names that start with _ are reserved")
    try:
        return expressions.resolve(computed.expression, schema, type=computed.type, default=computed.default)
    except LanguageError as error:
        _blame_text(error, where)
    except SchemaError as error:
        where.at("type", None).blame(error.message)
    return None


def _sort(operator: Sort, schema: Schema, spot: Spot) -> Schema:
    if not operator.by:
        spot.blame("expected at least one attribute to sort by")
    _groupable([key.attribute for key in operator.by], schema, spot, "by")
    _note_window(operator.window, schema, spot)
    return schema


def _note_window(window: TimeWindow | CountWindow | None, schema: Schema, spot: Spot) -> None:
    if isinstance(window, TimeWindow):
        _need_time(schema, spot.at("window", None), "for a window by time")
        if not 0 < window.slide_s <= window.length_s or window.lateness_s < 0:
            spot.at("window", None).blame("expected a slide above 0 and at most its length, and no negative lateness")
    elif window is not None and not 1 <= window.slide <= window.length:
        spot.at("window", None).blame(f"expected a slide from 1 to its length, {window.length} events")


def _need_time(schema: Schema, spot: Spot, why: str) -> None:
    if schema.event_time is None:
        moments = [field.name for field in schema.root if field.type == _TIME]
        named = f" (there is {', '.join(moments)})" if moments else ""
        spot.blame(
            f"expected an event time {why}, and there is none here: name a timestamp attribute as the stream's "
            f"event_time, keep it in every project before, or give custom an event_time{named}"
        )


def _groupable(names: Iterable[str], schema: Schema, spot: Spot, key: str) -> list[Field]:
    """Find attributes that hold single values; note those that are not there or don't."""
    names = list(names)
    found: list[Field] = []
    for n, name in enumerate(names):
        where = spot.at(key, None).at(n, None) if len(names) > 1 else spot.at(key, None)
        field = attribute(name, schema, where)
        if field is not None and isinstance(field.type, Array | Struct):
            where.blame(f"expected an attribute with a single value; {name} is {field.type}")
        elif field is not None:
            found.append(field)
    for name in sorted({name for name in names if names.count(name) > 1}):
        spot.at(key, None).blame(f"expected {name!r} once")
    return found


def attribute(name: str, schema: Schema, spot: Spot) -> Field | None:
    """Find an attribute of a schema, or note that it is not there."""
    found = schema.root.get(name)
    if found is None:
        names = [field.name for field in schema.root]
        inner = schema.root.get(name.partition(".")[0]) if "." in name else None
        if inner is not None:
            hint = f"; project a part of one first: {{x: {name}}}"
        else:
            hint = did_you_mean(name, names) or f"; expected one of {', '.join(names[:8])}"
        spot.blame(f"unknown attribute {name!r}{hint}")
    return found


def _aggregate(operator: Aggregate | Incremental, schema: Schema, spot: Spot) -> Schema | None:
    keys = _groupable(operator.by, schema, spot, "by")
    _note_emission(operator, schema, spot)
    fields = {field.name: field for field in keys}
    wholes = [each for each in operator.aggregations if each.name is None]
    for extra in wholes[1:]:
        spot.at(extra.function, None).blame(
            f"{extra.function} of {extra.attribute} and {wholes[0].function} of {wholes[0].attribute} can't both give "
            f"a whole event: name one, {{{extra.function}: {{{extra.attribute}: {extra.function}_{extra.attribute}}}}}"
        )
    if wholes:
        held = attribute(wholes[0].attribute or "", schema, spot.at(wholes[0].function, None))
        for field in schema.root:
            there = field.required and (field.name in fields or (held is not None and held.required))
            fields[field.name] = Field(field.name, field.type, there)
    if not operator.aggregations:
        spot.blame("expected at least one of count, sum, avg, min and max")
    for each in operator.aggregations:
        kind = _aggregated(each, schema, spot.at(each.function, None))
        if each.name is None or kind is None:
            continue
        _add(Field(each.name, kind, each.function == "count"), fields, spot.at(each.function, None))
    for field in _WINDOW:
        _add(field, fields, spot)
    return _made(spot, fields.values(), "window_end", [(schema, {*operator.by, *_whole_names(wholes, schema)})])


def _whole_names(wholes: Sequence[Aggregation], schema: Schema) -> list[str]:
    return [field.name for field in schema.root] if wholes else []


def _add(field: Field, fields: dict[str, Field], spot: Spot) -> None:
    if field.name in fields:
        spot.blame(f"expected names that differ: there are two {field.name!r}; name or project one otherwise")
    elif field.name.startswith("_"):
        spot.blame(f"names that start with _ are reserved, unlike {field.name!r}")
    fields[field.name] = field


def _note_emission(operator: Aggregate | Incremental, schema: Schema, spot: Spot) -> None:
    _note_window(operator.window, schema, spot)
    if isinstance(operator.window, CountWindow):
        _need_time(schema, spot.at("window", None), "for window_start and window_end")
        if operator.emit == "updates":
            spot.at("emit", None).blame("a window by count closes with its last event: expected emit: final")
    if operator.window is None:
        _need_time(schema, spot, "for window_start and window_end")
        if operator.emit == "final":
            spot.at("emit", None).blame("without a window there is no end to wait for: expected emit: updates")


def _aggregated(each: Aggregation, schema: Schema, spot: Spot) -> Type | None:
    """Give the type of an aggregate, or note why there is none."""
    if each.name is None and each.function not in ("min", "max"):
        spot.blame(f"{each.function} needs a name")
    if each.attribute is None:
        if each.function == "count":
            return Scalar("int64")
        spot.blame(f"{each.function} needs an attribute")
        return None
    field = attribute(each.attribute, schema, spot)
    if field is None:
        return None
    if each.function == "count":
        return Scalar("int64")
    kind = field.type
    if isinstance(kind, Array | Struct):
        spot.blame(f"expected an attribute with a single value; {each.attribute} is {kind}")
        return None
    if each.function in ("min", "max"):
        return kind
    if kind.kind not in ("int", "float"):
        spot.blame(f"{each.function} expected a number; {each.attribute} is {kind}")
        return None
    return Scalar("int64" if each.function == "sum" and kind.kind == "int" else "float64")


def _merge(inputs: Inputs, spot: Spot) -> Schema | None:
    (first, schema), *others = inputs
    fields = {field.name: field for field in schema.root}
    for name, other in others:
        theirs = {field.name: field for field in other.root}
        for missing in sorted({*fields} ^ {*theirs}):
            has, lacks = (first, name) if missing in fields else (name, first)
            spot.blame(f"expected the same schema of all inputs: {has} has an attribute {missing!r}, {lacks} has not")
        for key in fields.keys() & theirs.keys():
            if fields[key].type != theirs[key].type:
                spot.blame(
                    f"expected the same schema of all inputs: {key!r} is {fields[key].type} in {first} "
                    f"and {theirs[key].type} in {name}"
                )
        if schema.event_time != other.event_time:
            times = [f"{each.event_time or 'none'} in {of}" for of, each in ((first, schema), (name, other))]
            spot.blame(f"expected the same event_time of all inputs: it is {' and '.join(times)}")
    merged = [
        Field(key, field.type, all(getattr(each.root.get(key), "required", False) for _, each in inputs))
        for key, field in fields.items()
    ]
    # A promise holds of all where each input makes it.
    constraints = {k: v for k, v in schema.constraints.items() if all(o.constraints.get(k) == v for _, o in others)}
    terms = {k: v for k, v in schema.terms.items() if all(o.terms.get(k) == v for _, o in others)}
    return Schema(Struct(tuple(merged)), constraints=constraints, terms=terms, event_time=schema.event_time)


def _join(operator: Join, inputs: Inputs, spot: Spot) -> Schema | None:
    if len(inputs) != 2:
        return None
    (left_name, left), (right_name, right) = inputs
    for name, schema in inputs:
        if schema.event_time is None:
            _need_time(schema, spot, f"of {name}, to tell how far apart two events are")
    for ours, theirs in zip(
        _groupable(operator.on, left, spot, "on"), _groupable(operator.on, right, spot, "on"), strict=False
    ):
        if ours.name == theirs.name and not comparable(ours.type, theirs.type):
            kinds = f"{ours.type} in {left_name} and {theirs.type} in {right_name}"
            spot.at("on", None).blame(f"expected attributes of the same type: {ours.name} is {kinds}")
    if operator.within_s < 0 or operator.lateness_s < 0:
        spot.blame("expected no negative length of time")
    fields = {field.name: field for field in left.root}
    unchanged: set[str] = set()
    for field in right.root:
        if field.name in operator.on:
            continue
        clash = field.name in fields
        name = joined_name(right_name, field.name) if clash else field.name
        if not clash:
            unchanged.add(name)
        _add(Field(name, field.type, field.required), fields, spot)
    both = [(left, {field.name for field in left.root}), (right, unchanged)]
    return _made(spot, fields.values(), left.event_time, both)


def comparable(one: Type, other: Type) -> bool:
    """Whether values of two types may be equal: whole numbers of any size, text and characters, else one type."""
    groups = ({"int"}, {"string", "char"})
    return one == other or any(one.kind in group and other.kind in group for group in groups)


def _enrich(operator: Enrich, schema: Schema, spot: Spot) -> Schema | None:
    keys = _groupable(operator.on, schema, spot, "on")
    if not operator.on:
        spot.at("on", None).blame("expected at least one attribute that the table has too")
    try:
        table = tables.table_schema(operator.table)
    except TidegateError as error:
        spot.at("table" if operator.table.format != "jdbc" else "jdbc", None).blame(str(error))
        return None
    for key in keys:
        theirs = attribute(key.name, table, spot.at("on", None))
        if theirs is not None and not comparable(key.type, theirs.type):
            hint = "" if operator.table.schema else "; give the table a schema"
            spot.at("on", None).blame(
                f"expected a column of the same type: {key.name} is {key.type}, in the table {theirs.type}{hint}"
            )
    fields = {field.name: field for field in schema.root}
    for field in table.root:
        if field.name not in operator.on:
            _add(Field(field.name, field.type, field.required and operator.required), fields, spot)
    return _made(spot, fields.values(), schema.event_time, [(schema, {field.name for field in schema.root})])


def _custom(operator: Custom, schema: Schema, spot: Spot) -> Schema:
    _groupable(operator.by, schema, spot, "by")
    _note_window(operator.window, schema, spot)
    given = operator.schema
    if given.event_time is None and schema.event_time is not None:
        field = given.root.get(schema.event_time)
        if field is not None and field.type == _TIME:
            return Schema(given.root, constraints=given.constraints, terms=given.terms, event_time=field.name)
    return given


def _made(
    spot: Spot,
    fields: Iterable[Field],
    event_time: str | None,
    sources: Iterable[tuple[Schema, Iterable[str]]],
    renamed: Mapping[str, str] = NONE,
) -> Schema | None:
    """Make a schema that keeps constraints and terms of the attributes that passed unchanged."""
    constraints: dict[str, str] = {}
    terms: dict[str, Mapping[str, str]] = {}
    for schema, same in sources:
        names = set(same)
        constraints |= {key: text for key, text in schema.constraints.items() if _top(key, schema) in names}
        terms |= {key: each for key, each in schema.terms.items() if _top(key, schema) in names}
        terms |= {renamed[key]: each for key, each in schema.terms.items() if key in renamed}
    try:
        return Schema(Struct(tuple(fields)), constraints=constraints, terms=terms, event_time=event_time)
    except SchemaError as error:
        spot.blame(str(error))
        return None


def _top(key: str, schema: Schema) -> str:
    """The attribute that a constraint or a term is on: `pos` of `pos.x`."""
    return key if schema.root.get(key) is not None else key.partition(".")[0].partition("[")[0]


# Promises and masks ----------------------------------------------------------


def _promised(service: Service, schema: Schema, root: Spot) -> Schema:
    """Add a service's constraints and terms, checked."""
    terms = {**schema.terms, **service.terms}
    note_terms(service.terms, schema, root.at("terms", None))
    note_constraints(service.constraints, schema, root.at("constraints", None))
    constraints = {**schema.constraints, **service.constraints}
    return Schema(schema.root, constraints=constraints, terms=terms, event_time=schema.event_time)


def note_constraints(constraints: Mapping[str, str], schema: Schema, spot: Spot) -> None:
    """Note constraints that are no filters on their attribute."""
    for name, text in constraints.items():
        try:
            Constraints(Schema(schema.root, constraints={name: text}, event_time=schema.event_time))
        except SchemaError as error:
            if isinstance(error.__cause__, FilterError):
                _blame_text(error.__cause__, spot.at(name, None))
            else:
                spot.at(name, None).blame(error.message)


def note_terms(terms: Mapping[str, Mapping[str, str]], schema: Schema, spot: Spot) -> None:
    """Note terms that are no shapes, or of an attribute that is no number."""
    for name, each in terms.items():
        where = spot.at(name, None)
        try:
            found = expressions.resolve(name, schema) if schema.root.get(name) is None else None
            kind = schema.root.get(name).type if found is None else found.type  # type: ignore[union-attr]
        except LanguageError as error:
            where.blame(error.problems[0].message)
            continue
        if kind.kind not in ("int", "float"):
            where.blame(f"expected terms of a number; {name} is {kind}")
        for term, text in each.items():
            _note_shape(text, where.at(term, None))


def _note_shape(text: str, spot: Spot) -> None:
    try:
        parsed = parse_shape(text)
    except LanguageError as error:
        _blame_text(error, spot)
        return
    numbers = tuple(float(each.value) for each in parsed.numbers if isinstance(each, Literal))
    problem = memberships.problem(parsed.name, numbers) if len(numbers) == len(parsed.numbers) else "numbers only"
    if problem:
        spot.blame(f"expected {problem}, not {text!r}")


def _masked(service: Service, schema: Schema, root: Spot) -> Schema:
    fields = {field.name: field for field in schema.root}
    for name, mask in service.mask.items():
        spot = root.at("mask", None).at(name, None)
        field = attribute(name, schema, spot)
        if field is None:
            continue
        problem = _mask_problem(field, mask)
        if problem:
            spot.blame(problem)
        elif mask.how == "drop":
            del fields[name]
        elif mask.how == "hmac":
            fields[name] = Field(name, Scalar("string"), field.required)
    clear = {name for name in fields if name not in service.mask}
    time = schema.event_time if schema.event_time in clear else None
    found = _made(root, fields.values(), time, [(schema, clear)])
    constraints = found.constraints if found is not None and service.on_violation != "flag" else {}
    return schema if found is None else Schema(found.root, constraints=constraints, terms=found.terms, event_time=time)


def _mask_problem(field: Field, mask: Mask) -> str:
    kind = field.type
    match mask.how:
        case "hmac" if isinstance(kind, Array | Struct):
            return f"hmac expected a single value; {field.name} is {kind}"
        case "truncate" if kind.kind != "string":
            return f"truncate expected text; {field.name} is {kind}"
        case "round" if kind.kind not in ("int", "float"):
            return f"round expected a number; {field.name} is {kind}"
    return ""
