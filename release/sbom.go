package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"regexp"
	"runtime/debug"
	"time"
)

const sbomSuffix = ".spdx.json"

// The parts of SPDX 2.3 that are written here.
type (
	document struct {
		SPDXVersion   string      `json:"spdxVersion"`
		DataLicense   string      `json:"dataLicense"`
		SPDXID        string      `json:"SPDXID"`
		Name          string      `json:"name"`
		Namespace     string      `json:"documentNamespace"`
		Creation      creation    `json:"creationInfo"`
		Packages      []component `json:"packages"`
		Relationships []relation  `json:"relationships"`
	}
	creation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	component struct {
		SPDXID        string      `json:"SPDXID"`
		Name          string      `json:"name"`
		Version       string      `json:"versionInfo,omitempty"`
		Download      string      `json:"downloadLocation"`
		FilesAnalyzed bool        `json:"filesAnalyzed"`
		License       string      `json:"licenseDeclared"`
		Copyright     string      `json:"copyrightText"`
		Purpose       string      `json:"primaryPackagePurpose"`
		Checksums     []checksum  `json:"checksums,omitempty"`
		References    []reference `json:"externalRefs,omitempty"`
		Comment       string      `json:"comment,omitempty"`
	}
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	reference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relation struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

// unstated is what SPDX says where nothing is known.
const unstated = "NOASSERTION"

// sbom lists the modules that a binary is made of, from what the compiler wrote into it.
func sbom(file, version string, at time.Time) ([]byte, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	program := path.Base(info.Path)
	root := "SPDXRef-" + notInID.ReplaceAllString(program, "-")
	d := document{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT",
		Name: program + " " + version,
		// Unique, as it must be, and the same for the same binary.
		Namespace: "urn:sluice:sbom:" + sum,
		Creation:  creation{at.Format(time.RFC3339), []string{"Tool: sluice-release"}},
		Packages: []component{{SPDXID: root, Name: program, Version: version, Download: unstated, License: "Apache-2.0",
			Copyright: unstated, Purpose: "APPLICATION", Checksums: []checksum{{"SHA256", sum}}}},
		Relationships: []relation{{"SPDXRef-DOCUMENT", "DESCRIBES", root}},
	}
	add := func(c component) {
		c.Download, c.License, c.Copyright, c.Purpose = unstated, unstated, unstated, "LIBRARY"
		d.Packages = append(d.Packages, c)
		d.Relationships = append(d.Relationships, relation{root, "DEPENDS_ON", c.SPDXID})
	}
	add(component{SPDXID: "SPDXRef-go-stdlib", Name: "stdlib", Version: info.GoVersion,
		References: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/stdlib@" + info.GoVersion[len("go"):]}}})
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		add(module(m))
	}
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

var notInID = regexp.MustCompile(`[^a-zA-Z0-9.-]+`)

func module(m *debug.Module) component {
	c := component{
		SPDXID: "SPDXRef-go-" + notInID.ReplaceAllString(m.Path, "-") + "-" + notInID.ReplaceAllString(m.Version, "-"),
		Name:   m.Path, Version: m.Version,
		References: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.Path + "@" + m.Version}},
	}
	if m.Sum != "" {
		// It is a hash of hashes, not of an archive, so it is none of SPDX's checksums.
		c.Comment = "go.sum " + m.Sum
	}
	return c
}
