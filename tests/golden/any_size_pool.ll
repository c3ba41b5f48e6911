; max pool
; problem   points=4800 costly=0  (an example: each run decides its sizes)
; schedule  lanes=8 tasks=64 unroll=0
; engine    pool

define void @k(ptr %p0, ptr %p1, i64 %first, i64 %last) #0 {
entry:
  %s9 = alloca <8 x float>
  %v1 = icmp slt i64 %first, %last
  br i1 %v1, label %l2.body, label %l2.end
l2.body:
  %l2.i = phi i64 [ %first, %entry ], [ %l2.next, %l3.end ]
  br i1 true, label %l3.body, label %l3.end
l3.body:
  %l3.i = phi i64 [ 0, %l2.body ], [ %l3.next, %l10.end ]
  %v4 = mul i64 %l2.i, 16
  %v5 = mul i64 %l3.i, 8
  %v6 = add i64 %v4, %v5
  %v7 = mul i64 %l2.i, 64
  %v8 = mul i64 %l3.i, 16
  store <8 x float> splat (float 0xFFF0000000000000), ptr %s9
  br i1 true, label %l10.body, label %l10.end
l10.body:
  %l10.i = phi i64 [ 0, %l3.body ], [ %l10.next, %l14.end ]
  %v11 = mul i64 %l10.i, 32
  %v12 = add i64 %v7, %v11
  %v13 = add i64 %v12, %v8
  br i1 true, label %l14.body, label %l14.end
l14.body:
  %l14.i = phi i64 [ 0, %l10.body ], [ %l14.next, %l14.body ]
  %v15 = mul i64 %l14.i, 8
  %v16 = add i64 %v13, %v15
  %v17 = getelementptr float, ptr %p0, i64 %v16
  %v18 = load <8 x float>, ptr %v17, align 4
  %v19 = load <8 x float>, ptr %s9
  %v20 = call nsz <8 x float> @llvm.maximum.v8f32(<8 x float> %v19, <8 x float> %v18)
  store <8 x float> %v20, ptr %s9
  %l14.next = add nuw nsw i64 %l14.i, 1
  %v21 = icmp slt i64 %l14.next, 2
  br i1 %v21, label %l14.body, label %l14.end
l14.end:
  %l10.next = add nuw nsw i64 %l10.i, 1
  %v22 = icmp slt i64 %l10.next, 2
  br i1 %v22, label %l10.body, label %l10.end
l10.end:
  %v23 = load <8 x float>, ptr %s9
  %v24 = getelementptr float, ptr %p1, i64 %v6
  store <8 x float> %v23, ptr %v24, align 4
  %l3.next = add nuw nsw i64 %l3.i, 1
  %v25 = icmp slt i64 %l3.next, 2
  br i1 %v25, label %l3.body, label %l3.end
l3.end:
  %l2.next = add nuw nsw i64 %l2.i, 1
  %v26 = icmp slt i64 %l2.next, %last
  br i1 %v26, label %l2.body, label %l2.end
l2.end:
  ret void
}
