"""The expression language: `speed * 3.6`, `distance(lon, lat, 116.4, 39.9)`, `CASE WHEN speed > 60 THEN 'fast' END`.

    text ── parser ──▶ untyped tree ── type_checker, with a schema ──▶ Expression ──┬──▶ Spark SQL   sql
                                                                                    └──▶ a value     evaluate

`functions` has all operators and functions, with `conditions`, `geo` and `zones`; `casts` has all conversions between
types. Each entry has its Spark SQL and its
Python implementation. The Python one is slow and obvious, and tests compare Spark with it. No expression raises on a
value of its schema: a result that does not exist, or that its type can't hold, is null, also in Spark's ANSI mode.

    expression = both { "OR" both } ;        both = negation { "AND" negation } ;
    negation   = "NOT" negation | comparison ;
    comparison = sum [ relation sum | "IS" ["NOT"] "NULL"
                     | ["NOT"] ( "IN" "(" sum {"," sum} ")" | "LIKE" 'text' | "BETWEEN" sum "AND" sum ) ] ;
    sum        = product { ("+" | "-") product } ;
    product    = sign { ("*" | "/" | "%") sign } ;
    sign       = "-" sign | value ;
    value      = number | 'text' | "true" | "false" | "null" | call | case | path | "(" expression ")" ;
    call       = name "(" expression { "," expression } ")" ;
    case       = "CASE" [expression] { "WHEN" expression "THEN" expression } ["ELSE" expression] "END" ;
    path       = part { "." part } ;   part = ( name | '"' any text '"' ) { "[" index "]" } ;

Keywords may have any case. Except NOT, a keyword is an attribute where the grammar expects a value.
"""

from tidegate.expressions.evaluate import evaluate
from tidegate.expressions.nodes import Expression
from tidegate.expressions.parser import names
from tidegate.expressions.sql import to_sql
from tidegate.expressions.type_checker import resolve

__all__ = ["Expression", "evaluate", "names", "resolve", "to_sql"]
