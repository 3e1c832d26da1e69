# The SBOMs of a release, in CycloneDX. The same input always gives the same bytes.

# Returns the SBOM of a file with a binary, from what cargo-cyclonedx makes of its package: the file takes the place of the package, whose reference
# is a path of the machine that built it, like those of this project's libraries. The properties say what else the binary is made of.
def binary($file; $sha256; $properties):
  .metadata.component as $package
  | ([.components[] | select(.purl | contains("file://")) | {key: .["bom-ref"], value: "\(.name)@\(.version)"}] | from_entries) as $libraries
  | ($libraries + {($package["bom-ref"]): $file}) as $names
  | .metadata.component = {
      type: "application", "bom-ref": $file,
      name: $package.name, version: $package.version, licenses: $package.licenses, description: $package.description,
      hashes: [{alg: "SHA-256", content: $sha256}],
      properties: [$properties[] | capture("^(?<name>[^=]*)=(?<value>.*)$")]
    }
  | .components[].purl |= sub("\\?download_url=file://.*"; "")
  | (.components[]["bom-ref"], .dependencies[].ref, .dependencies[].dependsOn[]?) |= ($names[.] // .)
  | if tostring | contains("file://") then error("the SBOM of \($file) names a path of this machine") else . end;

# Returns an SBOM of this component, in the format, of the time and by the tools of the input.
def about($component; $components; $dependencies):
  {
    bomFormat: "CycloneDX", specVersion, version: 1,
    metadata: {timestamp: .metadata.timestamp, tools: .metadata.tools, component: $component},
    components: $components, dependencies: $dependencies
  };

# Merges the SBOMs of the binaries in an image: what they have in common appears once.
def image($digest):
  [.[] | .metadata.component, .components[]] as $components
  | ($components | unique_by(.["bom-ref"])) as $once
  | if $once == ($components | unique | sort_by(.["bom-ref"])) then . else error("the SBOMs differ about a component") end
  | .[0].metadata.component as $binary
  | "\($binary.name)@\($digest)" as $image
  | ([.[].dependencies[]] | group_by(.ref) | map({ref: .[0].ref, dependsOn: (map(.dependsOn[]?) | unique)})) as $dependencies
  | [{ref: $image, dependsOn: map(.metadata.component["bom-ref"])}] as $binaries
  | .[0]
  | about(
      {
        type: "container", "bom-ref": $image, name: $binary.name, version: $binary.version, licenses: $binary.licenses,
        purl: "pkg:oci/\($binary.name)@\($digest | gsub(":"; "%3A"))?tag=\($binary.version)"
      };
      $once; $dependencies + $binaries
    );

# Returns the SBOM of the chart's package, which names these images by their digests, from that of the operator's own image.
def chart($file; $sha256; $images):
  .metadata.component as $own
  | ($own["bom-ref"] | ltrimstr($own.name)) as $digest
  | ([$images[] | select(endswith($digest) | not) | capture("^(?<name>.*):(?<version>[^:@]*)@sha256:[0-9a-f]*$") + {type: "container", "bom-ref": .}])
    as $others
  | if ($images | length) == ($others | length) + 1 then . else error("of \($images) exactly one must have \($digest)") end
  | about(
      {
        type: "application", "bom-ref": $file, name: $own.name, version: $own.version, licenses: $own.licenses,
        description: "Helm chart", hashes: [{alg: "SHA-256", content: $sha256}]
      };
      [$own] + $others; [{ref: $file, dependsOn: ([$own] + $others | map(.["bom-ref"]))}]
    );
