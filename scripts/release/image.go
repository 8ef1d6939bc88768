package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	"github.com/opencontainers/image-spec/specs-go/v1"
)

// imageUser is the user and group id of the program in a container. The user owns the volume.
const imageUser = 10001

// certificateFile is the machine's list of certificate authorities, which the image contains.
const certificateFile = "/etc/ssl/certs/ca-certificates.crt"

// image writes the container image as an archive with an OCI layout. The tag is the version. For programs that know no
// images of several platforms, each platform has a tag too, such as 0.1.0-amd64.
func (b *build) image(context.Context) error {
	layout := &layout{}
	all := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex}
	root := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex}
	for _, p := range b.chosen() {
		if p.os != "linux" {
			continue
		}
		manifest, err := b.manifest(layout, p)
		if err != nil {
			return err
		}
		all.Manifests = append(all.Manifests, manifest)
		manifest.Annotations = map[string]string{v1.AnnotationRefName: b.version + "-" + p.arch}
		root.Manifests = append(root.Manifests, manifest)
	}
	if len(all.Manifests) == 0 {
		return nil // only a platform without containers is built
	}
	index, err := layout.addJSON(v1.MediaTypeImageIndex, all)
	if err != nil {
		return err
	}
	index.Annotations = map[string]string{v1.AnnotationRefName: b.version}
	root.Manifests = append([]v1.Descriptor{index}, root.Manifests...)
	return b.writeLayout(layout, root)
}

// manifest adds the image of a platform to the layout and returns its descriptor.
func (b *build) manifest(l *layout, p platform) (v1.Descriptor, error) {
	entries, err := b.imageFiles(p)
	if err != nil {
		return v1.Descriptor{}, err
	}
	var plain, packed bytes.Buffer
	if err := errors.Join(writeTar(&plain, b.date, entries), writeTarGz(&packed, b.date, entries)); err != nil {
		return v1.Descriptor{}, err
	}
	layer := l.add(v1.MediaTypeImageLayerGzip, packed.Bytes())
	user := fmt.Sprintf("%d:%d", imageUser, imageUser)
	config := v1.Image{Created: &b.date, Platform: v1.Platform{OS: p.os, Architecture: p.arch},
		RootFS:  v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(plain.Bytes())}},
		History: []v1.History{{Created: &b.date, CreatedBy: "scripts/release"}},
		Config: v1.ImageConfig{User: user, Entrypoint: []string{"/usr/bin/postrider"}, Cmd: []string{"serve"},
			Env:        []string{"PATH=/usr/bin", "POSTRIDER_DATA_DIR=/var/lib/postrider", "HOME=/var/lib/postrider"},
			WorkingDir: "/var/lib/postrider",
			Volumes:    map[string]struct{}{"/var/lib/postrider": {}},
			ExposedPorts: ports("8080/tcp", "80/tcp", "443/tcp", "25/tcp", "465/tcp", "587/tcp", "53/tcp",
				"53/udp"),
			StopSignal: "SIGTERM",
			Labels: map[string]string{v1.AnnotationTitle: "Postrider", v1.AnnotationVersion: b.version,
				v1.AnnotationLicenses: "Apache-2.0", v1.AnnotationSource: "https://github.com/postrider/postrider"}}}
	described, err := l.addJSON(v1.MediaTypeImageConfig, config)
	if err != nil {
		return v1.Descriptor{}, err
	}
	manifest, err := l.addJSON(v1.MediaTypeImageManifest, v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageManifest, Config: described, Layers: []v1.Descriptor{layer}})
	manifest.Platform = &v1.Platform{OS: p.os, Architecture: p.arch}
	return manifest, err
}

func ports(numbers ...string) map[string]struct{} {
	all := map[string]struct{}{}
	for _, n := range numbers {
		all[n] = struct{}{}
	}
	return all
}

// imageFiles lists the files of the image: the program, what it needs, and the licenses.
func (b *build) imageFiles(p platform) ([]entry, error) {
	authorities, err := os.ReadFile(certificateFile)
	if err != nil {
		return nil, fmt.Errorf("read the certificate authorities; on Debian and Ubuntu, install ca-certificates: %w", err)
	}
	passwd := fmt.Sprintf("root:x:0:0:root:/:/nologin\npostrider:x:%d:%d::/var/lib/postrider:/nologin\n", imageUser,
		imageUser)
	group := fmt.Sprintf("root:x:0:\npostrider:x:%d:\n", imageUser)
	return []entry{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", text: []byte(group), mode: 0o644},
		{name: "etc/passwd", text: []byte(passwd), mode: 0o644},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", text: authorities, mode: 0o644},
		{name: "tmp/", mode: 0o1777},
		{name: "usr/", mode: 0o755},
		{name: "usr/bin/", mode: 0o755},
		{name: "usr/bin/postrider", from: b.binary(p), mode: 0o755},
		{name: "usr/share/", mode: 0o755},
		{name: "usr/share/doc/", mode: 0o755},
		{name: "usr/share/doc/postrider/", mode: 0o755},
		{name: "usr/share/doc/postrider/third-party-licenses.txt", from: b.licensesFile(), mode: 0o644},
		{name: "var/", mode: 0o755},
		{name: "var/lib/", mode: 0o755},
		{name: "var/lib/postrider/", mode: 0o700, owner: imageUser},
	}, nil
}

// layout holds the blobs of an OCI layout.
type layout struct{ blobs []entry }

// add adds a blob and returns its descriptor.
func (l *layout) add(mediaType string, data []byte) v1.Descriptor {
	d := v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	name := "blobs/sha256/" + d.Digest.Encoded()
	if !slices.ContainsFunc(l.blobs, func(e entry) bool { return e.name == name }) {
		l.blobs = append(l.blobs, entry{name: name, text: data, mode: 0o644})
	}
	return d
}

func (l *layout) addJSON(mediaType string, v any) (v1.Descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return l.add(mediaType, data), nil
}

// writeLayout writes the archive of the image.
func (b *build) writeLayout(l *layout, root v1.Index) error {
	index, err := json.Marshal(root)
	if err != nil {
		return err
	}
	version, err := json.Marshal(v1.ImageLayout{Version: v1.ImageLayoutVersion})
	if err != nil {
		return err
	}
	entries := []entry{{name: v1.ImageLayoutFile, text: version, mode: 0o644},
		{name: v1.ImageIndexFile, text: index, mode: 0o644}, {name: "blobs/", mode: 0o755},
		{name: "blobs/sha256/", mode: 0o755}}
	entries = append(entries, l.blobs...)
	return b.writeFile(fmt.Sprintf("postrider_%s_image.tar", b.version), func(w io.Writer) error {
		return writeTar(w, b.date, entries)
	})
}
