// Clouds that a user can turn. The element before this script holds the data (clouds_3d.py says how), a canvas, controls
// and a text that stays where there is no WebGL.
(() => {
  const root = document.currentScript.previousElementSibling;
  const canvas = root.querySelector("canvas");
  const data = JSON.parse(root.querySelector("script").textContent);
  const gl = canvas.getContext("webgl", { antialias: true });
  if (!gl) return;

  const VERTEX = `
    attribute vec3 point;             // whole steps; baseFromPoint knows their length
    uniform mat4 baseFromPoint, clipFromBase;
    uniform float bottom, top, size, far;
    varying float haze, height;
    void main() {
      vec4 base = baseFromPoint * vec4(point, 1.0);
      gl_Position = base.z > top || base.z < bottom ? vec4(2.0, 2.0, 2.0, 1.0) : clipFromBase * base;
      gl_PointSize = clamp(size / gl_Position.w, 1.5, 4.0);
      height = clamp(base.z / 2.5, 0.0, 1.0);
      haze = clamp(gl_Position.w / far - 0.5, 0.0, 0.6);
    }`;
  const FRAGMENT = `
    precision mediump float;
    uniform vec3 colour;
    varying float haze, height;
    void main() {
      if (distance(gl_PointCoord, vec2(0.5)) > 0.5) discard;
      gl_FragColor = vec4(mix(colour * (1.1 - 0.6 * height), vec3(1.0), haze), 1.0);
    }`;
  const compiled = (type, source) => {
    const shader = gl.createShader(type);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    return shader;
  };
  let program, place, clouds;
  const setUp = () => {
    program = gl.createProgram();
    gl.attachShader(program, compiled(gl.VERTEX_SHADER, VERTEX));
    gl.attachShader(program, compiled(gl.FRAGMENT_SHADER, FRAGMENT));
    gl.bindAttribLocation(program, 0, "point");
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) return false;
    gl.useProgram(program);
    gl.enable(gl.DEPTH_TEST);
    gl.clearColor(1, 1, 1, 1);
    gl.enableVertexAttribArray(0);
    place = (name) => gl.getUniformLocation(program, name);
    clouds = data.clouds.map((cloud) => {
      const bytes = Uint8Array.from(atob(cloud.points), (letter) => letter.charCodeAt(0));
      const buffer = gl.createBuffer();
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.bufferData(gl.ARRAY_BUFFER, bytes, gl.STATIC_DRAW);
      return { ...cloud, buffer, count: bytes.length / 6 };
    });
    return true;
  };
  if (!setUp()) return;
  root.classList.add("works");

  const slider = root.querySelector("input[type=range]");
  // The eye looks at `target` from `distance`; `turn` is about z, `rise` above the horizon (rad). Lengths in m, in base_link.
  const START = { target: [0, 0, 0.3], distance: 2 * data.reach, turn: -2.2, rise: 0.8, bottom: -1e9, top: Number(slider.value) };
  // A wall from straight above: one line, or two.
  const SPOT = { target: data.spot, distance: 0.9, turn: -Math.PI / 2, rise: Math.PI / 2, bottom: data.spot[2] - 0.1, top: data.spot[2] + 0.1 };
  const eye = { ...START };
  const field = Math.tan(0.4); // of half the angle of view

  // Matrices are column by column, as WebGL has them.
  const times = (a, b) =>
    Array.from({ length: 16 }, (_, i) => [0, 1, 2, 3].reduce((sum, k) => sum + a[k * 4 + (i % 4)] * b[(i & 12) + k], 0));
  const axes = () => {
    const [ct, st, cr, sr] = [Math.cos(eye.turn), Math.sin(eye.turn), Math.cos(eye.rise), Math.sin(eye.rise)];
    return { right: [-st, ct, 0], up: [-sr * ct, -sr * st, cr], back: [cr * ct, cr * st, sr] };
  };
  const clipFromBase = () => {
    const { right, up, back } = axes();
    const dot = (axis) => axis.reduce((sum, value, i) => sum + value * eye.target[i], 0);
    const view = [
      right[0], up[0], back[0], 0, right[1], up[1], back[1], 0, right[2], up[2], back[2], 0,
      -dot(right), -dot(up), -dot(back) - eye.distance, 1,
    ];
    const [near, far] = [0.02 * eye.distance, eye.distance + 3 * data.reach];
    const wide = canvas.width / canvas.height;
    return times(
      [1 / (field * wide), 0, 0, 0, 0, 1 / field, 0, 0, 0, 0, (near + far) / (near - far), -1, 0, 0, (2 * near * far) / (near - far), 0],
      view,
    );
  };

  let waiting = false;
  const draw = () => {
    waiting = false;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = canvas.clientHeight * ratio;
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.uniformMatrix4fv(place("clipFromBase"), false, clipFromBase());
    gl.uniform1f(place("size"), (0.01 * canvas.height) / field);
    gl.uniform1f(place("bottom"), eye.bottom);
    gl.uniform1f(place("top"), eye.top);
    gl.uniform1f(place("far"), eye.distance + data.reach);
    const when = root.querySelector("input[type=radio]:checked").value;
    for (const cloud of clouds) {
      if (!root.querySelector(`input[type=checkbox][value=${JSON.stringify(cloud.name)}]`).checked) continue;
      gl.bindBuffer(gl.ARRAY_BUFFER, cloud.buffer);
      gl.vertexAttribPointer(0, 3, gl.SHORT, false, 6, 0);
      gl.uniformMatrix4fv(place("baseFromPoint"), false, cloud[when]);
      gl.uniform3fv(place("colour"), cloud.colour);
      gl.drawArrays(gl.POINTS, 0, cloud.count);
    }
  };
  const redraw = () => {
    if (!waiting) requestAnimationFrame(draw);
    waiting = true;
  };

  const turn = (right, up) => {
    eye.turn -= right;
    eye.rise = Math.min(Math.PI / 2, Math.max(-Math.PI / 2, eye.rise + up));
  };
  const shift = (right, up) => {
    const seen = axes();
    eye.target = eye.target.map((value, i) => value - (seen.right[i] * right + seen.up[i] * up) * 2 * field * eye.distance);
  };
  const zoom = (factor) => (eye.distance = Math.min(5 * data.reach, Math.max(0.1, eye.distance * factor)));

  const fingers = new Map();
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, event);
  });
  const apart = () => {
    const [one, two] = [...fingers.values()];
    return Math.hypot(one.clientX - two.clientX, one.clientY - two.clientY);
  };
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const right = (event.clientX - before.clientX) / canvas.clientHeight;
    const up = (before.clientY - event.clientY) / canvas.clientHeight;
    const gap = fingers.size === 2 ? apart() : 0;
    fingers.set(event.pointerId, event);
    if (fingers.size === 2) {
      zoom(gap / Math.max(apart(), 1));
      shift(right / 2, up / 2);
    } else if (event.shiftKey || event.buttons & 2) shift(right, up);
    else turn(4 * right, -4 * up);
    redraw();
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (event) => fingers.delete(event.pointerId));
  canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  // Only after a click, so that whoever scrolls through the page is not held up here.
  canvas.addEventListener("wheel", (event) => {
    if (document.activeElement !== canvas) return;
    event.preventDefault();
    zoom(Math.exp(Math.sign(event.deltaY) * 0.1));
    redraw();
  }, { passive: false });
  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (ARROWS[event.key]) (event.shiftKey ? shift : turn)(...ARROWS[event.key].map((step) => 0.08 * step));
    else if (event.key === "+" || event.key === "=") zoom(0.9);
    else if (event.key === "-") zoom(1 / 0.9);
    else return;
    event.preventDefault();
    redraw();
  });
  slider.addEventListener("input", () => (eye.top = Number(slider.value)));
  const looks = { room: START, spot: SPOT };
  for (const button of root.querySelectorAll("button"))
    button.addEventListener("click", () => {
      Object.assign(eye, looks[button.value]);
      slider.value = eye.top;
      redraw();
    });
  root.addEventListener("input", redraw);
  canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
  canvas.addEventListener("webglcontextrestored", () => setUp() && redraw());
  new ResizeObserver(redraw).observe(canvas);
  redraw();
})();
