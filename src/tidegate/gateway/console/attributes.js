/** The attributes of a schema, as filters name them. */

const quoted = (text) => (/^[A-Za-z_]\w*$/.test(text) ? text : `"${text.replaceAll('"', '""')}"`);

/** An attribute in a filter: its name, and those it is inside of. */
export const named = (path) => path.map(quoted).join(".");

/** What an event has there. */
export const valueAt = (event, path) => path.reduce((within, name) => within?.[name], event);

/**
 * Every attribute that has a value of its own, with its type: of records those that are in them.
 * @returns {{path: string[], type: string}[]}
 */
export function flat(schema, above = []) {
  return Object.entries(schema).flatMap(([name, type]) => (typeof type === "string" ? [{ path: [...above, name], type }] : flat(type, [...above, name])));
}

/** A type in the notation of service files. */
export const notation = (type) => (typeof type === "string" ? type : `{${Object.entries(type).map(([name, of]) => `${name}: ${notation(of)}`).join(", ")}}`);

/** Whether values of a type are numbers. */
export const isNumber = (type) => /^(?:u?int|float)\d+\??$/.test(type);
