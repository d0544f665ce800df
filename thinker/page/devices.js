// Camera and microphone: ask once, make do with what there is, and say in plain words what is missing.

const WANTED = {
  video: { width: { ideal: 640 }, height: { ideal: 480 }, frameRate: { ideal: 25 }, facingMode: 'user' },
  audio: { echoCancellation: true, noiseSuppression: true, autoGainControl: true },
};
const NAME = { video: 'camera', audio: 'microphone' };
const KIND = { video: 'videoinput', audio: 'audioinput' };

/** Why this browser can't do a session here at all, or null. */
export function whyImpossible() {
  if (!window.isSecureContext) {
    return (
      'Browsers allow camera, microphone and live sound only on https or on localhost, and this page came over ' +
      `plain http from ${location.hostname}. On this computer, run “ssh -L ${location.port || 80}:localhost:` +
      `${location.port || 80} ${location.hostname}” and open http://localhost:${location.port || 80}/ instead, ` +
      'or put https in front of the server.'
    );
  }
  if (!window.AudioWorkletNode) return 'This browser has no AudioWorklet. A current Chrome, Edge, Firefox or Safari works.';
  return null;
}

/**
 * Ask for what is plugged in.
 * @returns {Promise<{stream: MediaStream, notes: string[]}>} a stream with 0 to 2 tracks, and what to tell the user
 */
export async function openDevices() {
  const stream = new MediaStream();
  if (!navigator.mediaDevices) return { stream, notes: ['This browser offers no camera or microphone. You can type.'] };
  const plugged = await pluggedIn();
  const notes = Object.keys(NAME)
    .filter((medium) => !plugged.includes(medium))
    .map((medium) => `No ${NAME[medium]} was found.${medium === 'audio' ? ' You can type.' : ''}`);
  if (plugged.length === 0) return { stream, notes };
  try {
    add(stream, await ask(plugged));
  } catch (error) {
    // One refusal may hide a device that would work: try each alone, but never ask twice what was just denied.
    const alone = error.name === 'NotAllowedError' ? await granted(plugged) : plugged;
    for (const medium of plugged) {
      notes.push(...(alone.includes(medium) && plugged.length > 1 ? await addAlone(stream, medium) : [explain(error, medium)]));
    }
  }
  return { stream, notes };
}

const ask = (media) => navigator.mediaDevices.getUserMedia(Object.fromEntries(media.map((m) => [m, WANTED[m]])));

const add = (stream, more) => more.getTracks().forEach((track) => stream.addTrack(track));

async function addAlone(stream, medium) {
  try {
    add(stream, await ask([medium]));
    return [];
  } catch (error) {
    return [explain(error, medium)];
  }
}

async function pluggedIn() {
  const devices = await navigator.mediaDevices.enumerateDevices();
  return Object.keys(NAME).filter((medium) => devices.some((device) => device.kind === KIND[medium]));
}

async function granted(media) {
  const states = await Promise.all(
    media.map((medium) => navigator.permissions?.query({ name: NAME[medium] }).catch(() => null)),
  );
  return media.filter((_, index) => states[index]?.state === 'granted');
}

function explain(error, medium) {
  const name = NAME[medium];
  switch (error.name) {
    case 'NotAllowedError':
      return `The ${name} is blocked for this page. The icon beside the address allows it; then end and start again.`;
    case 'NotFoundError':
      return `No ${name} was found.`;
    case 'NotReadableError':
    case 'AbortError':
      return `The ${name} can't be opened. Another program may be using it.`;
    default:
      return `The ${name} can't be used (${error.message || error.name}).`;
  }
}
