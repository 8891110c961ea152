/** JSON with whole numbers as exact as the API has them: what a double would round is a BigInt. */

const WHOLE = /^-?\d+$/;

const exact = (_, value, said) => (typeof value === "number" && !Number.isSafeInteger(value) && WHOLE.test(said?.source ?? "") ? BigInt(said.source) : value);

/** What a text says. */
export const parse = (text) => JSON.parse(text, exact);

/** A value as text, written as it was read. */
export const write = (value, indent) => JSON.stringify(value, (_, each) => (typeof each === "bigint" ? JSON.rawJSON(String(each)) : each), indent);
