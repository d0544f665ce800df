// What the page says in plain words.

const ENDS = {
  1000: 'The session has ended.',
  1001: 'The server is shutting down.',
  1002: 'The page and the server misunderstood each other. Reloading the page may help.',
  1003: 'The server can’t use the sound or pictures of this browser.',
  1006: 'The connection was lost.',
  1007: 'The page and the server misunderstood each other. Reloading the page may help.',
  1008: 'The server ended the session.',
  1009: 'A message was too big for the server.',
  1011: 'The model has ended.',
  1013: 'The connection is too slow, or the server is too busy.',
  4000: 'This page and the server are of different versions. Reload the page.',
  4001: 'The server asks for a token. Open the address that it printed, with the token in it.',
  4002: 'The server did not hear from this page in time.',
  4003: 'The session goes on in another window.',
};

/** Why a session is over. @param {boolean} hadBegun whether `ready` was ever received */
export function explainEnd(code, reason, hadBegun) {
  if (code === 1006 && !hadBegun) return 'The server can’t be reached. Is it running?';
  const words = ENDS[code] ?? `The connection was closed (${code}).`;
  const known = code === 1000 || code === 4001;
  return reason && !known ? `${words} It says: ${reason}.`.replace('..', '.') : words;
}

/** How one stands in the queue: “You are 2nd in line, about 40 s.” */
export function explainQueue({ position, eta_s: eta }) {
  const place = position === 1 ? 'next' : `${ordinal(position)} in line`;
  return `Waiting for a free slot. You are ${place}${eta === null || eta === undefined ? '' : `, ${about(eta)}`}.`;
}

function ordinal(n) {
  const teen = n % 100 > 10 && n % 100 < 14;
  return `${n}${(!teen && { 1: 'st', 2: 'nd', 3: 'rd' }[n % 10]) || 'th'}`;
}

function about(seconds) {
  if (seconds < 1) return 'any moment now';
  return `about ${seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.round(seconds / 60)} min`}`;
}
