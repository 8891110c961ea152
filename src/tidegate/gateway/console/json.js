/** JSON with exact 64-bit integers: an integer that a double would round is a BigInt. */

const WHOLE = /^-?\d+$/;

const exact = (_, value, said) => (typeof value === "number" && !Number.isSafeInteger(value) && WHOLE.test(said?.source ?? "") ? BigInt(said.source) : value);

/** Parse JSON. */
export const parse = (text) => JSON.parse(text, exact);

/** Write JSON; a BigInt is written as a number. */
export const write = (value, indent) => JSON.stringify(value, (_, each) => (typeof each === "bigint" ? JSON.rawJSON(String(each)) : each), indent);
