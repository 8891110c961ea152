/** The attributes of a schema, and how filters name them. */

const quoted = (text) => (/^[A-Za-z_]\w*$/.test(text) ? text : `"${text.replaceAll('"', '""')}"`);

/** Return the text of an attribute path in a filter, quoted where needed. */
export const named = (path) => path.map(quoted).join(".");

/** Return the value of an event at a path; undefined if there is none. */
export const valueAt = (event, path) => path.reduce((within, name) => within?.[name], event);

/**
 * Return all leaf attributes of a schema with their types; records are replaced by their attributes.
 * @returns {{path: string[], type: string}[]}
 */
export function flat(schema, above = []) {
  return Object.entries(schema).flatMap(([name, type]) => (typeof type === "string" ? [{ path: [...above, name], type }] : flat(type, [...above, name])));
}

/** Return a type in the notation of service files. */
export const notation = (type) => (typeof type === "string" ? type : `{${Object.entries(type).map(([name, of]) => `${name}: ${notation(of)}`).join(", ")}}`);

/** True if a type is numeric. */
export const isNumber = (type) => /^(?:u?int|float)\d+\??$/.test(type);
