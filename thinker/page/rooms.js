// Which of the two rooms this server is for: it holds live sessions, or it makes films.

const ROOMS = {
  live: { path: './', sentence: 'This server holds live sessions: it makes no films.' },
  film: { path: 'film', sentence: 'This server makes films: nobody is here to talk to.' },
};

/** The token of the page's address, kept in the links between the rooms. */
export const token = new URLSearchParams(location.search).get('token');

for (const link of document.querySelectorAll('nav a')) {
  if (token) link.search = new URLSearchParams({ token });
}

/**
 * Ask the server what it makes.
 * @returns {Promise<object|null>} its model, or null where it does not say (an older server)
 * @throws {Error} with a sentence for the user
 */
export async function model() {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  let answer;
  try {
    answer = await fetch('v1/models', { headers });
  } catch {
    throw new Error('The server does not answer.');
  }
  if (answer.status === 401) throw new Error('This server asks for a token: open the address that it printed.');
  if (!answer.ok) return null;
  return (await answer.json()).data[0];
}

/** What to tell in a room that this server is not for, or ''. */
export function otherRoom(made, here) {
  const workload = made?.workload ?? 'live';
  return workload === here ? '' : ROOMS[workload].sentence;
}
