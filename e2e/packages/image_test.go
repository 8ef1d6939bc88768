//go:build packages

package packages

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// imageUser is the user id in the image.
const imageUser = 10001

// unpack unpacks the image of a processor architecture and returns the folder of its bundle.
func unpack(t *testing.T, arch string) string {
	t.Helper()
	layout := filepath.Join(t.TempDir(), "layout")
	if err := os.Mkdir(layout, 0o755); err != nil {
		t.Fatal(err)
	}
	file := release(t, "postrider_*_image.tar")
	run(t, "tar", "-xf", file, "-C", layout)
	bundle := filepath.Join(t.TempDir(), "bundle")
	run(t, "umoci", "unpack", "--image", layout+":"+imageTag(file)+"-"+arch, bundle)
	return bundle
}

// imageTag returns the tag that the name of the file contains.
func imageTag(file string) string {
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "postrider_"), "_image.tar")
}

// run runs a command, which must succeed, and returns its output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// awaitReady waits until the node at a URL is ready.
func awaitReady(t *testing.T, url string) {
	t.Helper()
	eventually(t, url+" is ready", func() bool {
		r, err := http.Get(url + "/readyz")
		if err == nil {
			r.Body.Close()
		}
		return err == nil && r.StatusCode == http.StatusOK
	})
}

// startProcess starts a process that is killed when the test ends. A failed test shows its output.
func startProcess(t *testing.T, env []string, name string, args ...string) (*exec.Cmd, *said) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	output := &said{}
	c.Env, c.Stdout, c.Stderr = env, output, output
	c.Dir = t.TempDir()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", name, output)
		}
	})
	return c, output
}

// The tag of the image leads to the image of each platform.
func TestImageOfEachPlatform(t *testing.T) {
	file := release(t, "postrider_*_image.tar")
	for _, arch := range []string{"amd64", "arm64"} {
		var shown struct {
			Architecture, OS string
			Config           struct {
				User         string
				ExposedPorts map[string]any
				Volumes      map[string]any
			} `json:"config"`
		}
		text := run(t, "skopeo", "inspect", "--override-arch", arch, "--config", "oci-archive:"+file+":"+imageTag(file))
		if err := json.Unmarshal([]byte(text), &shown); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if shown.Architecture != arch || shown.OS != "linux" || shown.Config.User != "10001:10001" ||
			len(shown.Config.ExposedPorts) < 5 || len(shown.Config.Volumes) != 1 {
			t.Errorf("%s has %+v", arch, shown)
		}
	}
}

// runc runs the image with a root folder to which nobody can write, as a user without privileges. The data is in a
// volume.
func TestImage(t *testing.T) {
	if !inside(t) {
		return
	}
	bundle := unpack(t, "amd64")
	volume := filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(volume, imageUser, imageUser); err != nil {
		t.Fatal(err)
	}
	changeBundle(t, bundle, volume)
	c, output := startProcess(t, os.Environ(), "runc", "--root", t.TempDir(), "run", "--bundle", bundle, "postrider-test")
	awaitReady(t, "http://127.0.0.1:8080")
	info, err := os.Stat(filepath.Join(volume, "postrider.db"))
	if err != nil || info.Size() == 0 {
		t.Errorf("the volume has no database: %v", err)
	}
	c.Process.Signal(os.Interrupt) // runc forwards signals
	if err := c.Wait(); err != nil {
		t.Errorf("the container ended with %v\n%s", err, output)
	}
	if !strings.Contains(output.String(), "msg=stopped") {
		t.Errorf("the node does not stop in order:\n%s", output)
	}
}

// changeBundle adapts umoci's bundle to a machine without a container engine: the network of the test, no terminal, and
// a volume for the data. The command, the user and the variables stay as in the image.
func changeBundle(t *testing.T, bundle, volume string) {
	t.Helper()
	name := filepath.Join(bundle, "config.json")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var spec map[string]any
	if err := json.Unmarshal(data, &spec); err != nil {
		t.Fatal(err)
	}
	process := spec["process"].(map[string]any)
	user := process["user"].(map[string]any)
	if user["uid"] != float64(imageUser) || user["gid"] != float64(imageUser) {
		t.Errorf("the image runs as %v", user)
	}
	if args := process["args"].([]any); !slices.Equal(args, []any{"/usr/bin/postrider", "serve"}) {
		t.Errorf("the image runs %v", args)
	}
	process["terminal"] = false
	process["capabilities"] = map[string]any{}
	spec["root"].(map[string]any)["readonly"] = true
	mounts := slices.DeleteFunc(spec["mounts"].([]any), func(m any) bool {
		to := m.(map[string]any)["destination"]
		return to == "/var/lib/postrider" || to == "/sys/fs/cgroup" || to == "/etc/resolv.conf"
	})
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver 127.0.0.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	spec["mounts"] = append(mounts,
		map[string]any{"destination": "/var/lib/postrider", "type": "bind", "source": volume,
			"options": []string{"bind", "rw"}},
		map[string]any{"destination": "/etc/resolv.conf", "type": "bind", "source": resolv,
			"options": []string{"bind", "ro"}},
		map[string]any{"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": []string{"mode=1777"}})
	linux := spec["linux"].(map[string]any)
	linux["namespaces"] = slices.DeleteFunc(linux["namespaces"].([]any), func(n any) bool {
		kind := n.(map[string]any)["type"]
		return kind == "network" || kind == "user"
	})
	for _, key := range []string{"resources", "uidMappings", "gidMappings"} {
		delete(linux, key)
	}
	if data, err = json.Marshal(spec); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The program for arm64 starts and serves under an emulator.
func TestArm64(t *testing.T) {
	if !inside(t) {
		return
	}
	program := filepath.Join(unpack(t, "arm64"), "rootfs/usr/bin/postrider")
	if got := run(t, "qemu-aarch64-static", program, "version"); !strings.HasSuffix(got, "linux/arm64)") {
		t.Errorf("the version is %s", got)
	}
	_, output := startProcess(t, []string{"PATH=" + os.Getenv("PATH")}, "qemu-aarch64-static", program, "serve",
		"--data-dir", t.TempDir(),
		"--http-listen", "127.0.0.1:8080", "--hostname", "mail.example.com", "--dns-servers", "127.0.0.1")
	awaitReady(t, "http://127.0.0.1:8080")
	if !strings.Contains(output.String(), `msg="RSA signatures" implementation=Go`) {
		t.Errorf("the node said:\n%s", output)
	}
}
